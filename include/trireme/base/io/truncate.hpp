// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace trireme::io {

/// ftruncate, made again when a signal interrupts it, as network file systems let it: 0, or -1 with errno.
[[nodiscard]] int truncate(int descriptor, std::int64_t bytes);

}  // namespace trireme::io
