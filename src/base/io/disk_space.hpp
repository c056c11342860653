// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

namespace trireme::io {

/// Throws WriteError when the limits of this process (ulimit -f) leave no file of `bytes` bytes. path: for the message.
void require_file_size(const std::string& path, std::int64_t bytes);

/// Throws WriteError unless a file `path` of `bytes` bytes can be had; leaves an empty one there. To be asked before
/// HDF5 writes: it crashes over a file that it cannot close.
void require_disk_space(const std::string& path, std::int64_t bytes);

}  // namespace trireme::io
