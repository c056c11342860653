// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

namespace trireme::io {

/// Throws WriteError when the limits of this process (ulimit -f) leave no file of `bytes` bytes. path: for the message.
void require_file_size(const std::string& path, std::int64_t bytes);

}  // namespace trireme::io
