// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <chrono>

namespace trireme::supervise {

/// At most 30 years, so that adding it to a time point does not overflow for any value of the run file.
[[nodiscard]] inline std::chrono::steady_clock::duration bounded_duration(double seconds) {
  constexpr double longest_seconds = 1e9;
  return std::chrono::duration_cast<std::chrono::steady_clock::duration>(
      std::chrono::duration<double>(std::min(seconds, longest_seconds)));
}

}  // namespace trireme::supervise
