// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <optional>

namespace trireme::io {

/// fsync: 0, or -1 with errno. It may take minutes without any other sign of progress.
[[nodiscard]] int flush_to_disk(int descriptor);

/// While threads of this process are in `flush_to_disk`: the latest time at which one of them entered or left.
[[nodiscard]] std::optional<std::chrono::steady_clock::time_point> flushing_since();

}  // namespace trireme::io
