// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace trireme::io {

/// Opens `path`, which one process at a time may be at work on, and locks it until the descriptor is closed. flags: of
/// open(). -1 with errno: EWOULDBLOCK when another process has it. Where a file system has no locks it is only opened.
[[nodiscard]] int open_alone(const std::string& path, int flags);

}  // namespace trireme::io
