// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <utility>
#include <vector>

#include "trireme/device/memory.hpp"

namespace trireme::timeline {

using Clock = std::chrono::steady_clock;

/// When one op of the schedule ran, or several that were launched as one.
struct Span {
  std::int64_t step = 0;
  int op = 0;
  int last = 0;  ///< of those that were launched with `op`
  Clock::time_point begin;
  Clock::time_point end;
  std::array<device::SpaceUse, device::space_count> memory{};  ///< at its end
};

/// Spans of ops on all lanes of this rank. Lanes write; any thread reads after a drain.
class Timeline {
 public:
  void record(const Span& span) {
    const std::scoped_lock lock(mutex_);
    spans_.push_back(span);
  }
  /// The spans recorded so far, in the order in which they ended; forgets them.
  [[nodiscard]] std::vector<Span> take() {
    const std::scoped_lock lock(mutex_);
    return std::exchange(spans_, {});
  }

 private:
  std::mutex mutex_;
  std::vector<Span> spans_;
};

}  // namespace trireme::timeline
