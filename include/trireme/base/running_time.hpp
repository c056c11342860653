// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>

namespace trireme {

/// Seconds since `since` in which this process was running. Periods in which it was stopped as a whole (SIGSTOP,
/// `scontrol suspend`, gang scheduling, a frozen container, a debugger) are left out where a RunningClock ticks. Any
/// thread may call it.
[[nodiscard]] double running_seconds(std::chrono::steady_clock::time_point since);

/// Detects that the process was stopped, by late ticks of one thread. At most one instance exists at a time.
class RunningClock {
 public:
  RunningClock();
  RunningClock(const RunningClock&) = delete;
  RunningClock& operator=(const RunningClock&) = delete;
  ~RunningClock();

  /// Called by the thread again and again; the next call is due after `period`. One that is several periods late shows
  /// that the process did not run in between.
  void tick(std::chrono::steady_clock::duration period);
};

}  // namespace trireme
