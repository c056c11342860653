// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace trireme::io {

/// Counts a file that a loop has looked at, opened or removed. Where no bytes move, a change of the count shows that
/// this process is at work. Any thread may call it.
void count_handled_file();

/// Files that were counted since the process began.
[[nodiscard]] std::int64_t handled_files();

}  // namespace trireme::io
