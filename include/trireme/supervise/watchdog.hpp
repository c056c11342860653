// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <condition_variable>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>

#include "trireme/base/running_time.hpp"
#include "trireme/mpi/deadline.hpp"
#include "trireme/mpi/flight.hpp"

namespace trireme::supervise {

/// Ends the job when the compute side stops making marks, or when a collective hangs inside MPI where its own deadline
/// is not looked at. One thread per rank, asleep between looks. Time in which the process did not run does not count.
class Watchdog {
 public:
  static constexpr long no_step = -1;  ///< of a mark before the first step
  static constexpr long at_end = -2;   ///< of a mark after the last step

  /// deadline.timeout_seconds: the longest time between two marks. recorder: may be null; must outlive the watchdog.
  /// start: the section before any step ("": nothing is expected until the first mark). detects_stops: its thread,
  /// which waits for nothing else then, is the process's RunningClock.
  Watchdog(mpi::Deadline deadline, const mpi::FlightRecorder* recorder, std::string_view start = {},
           bool detects_stops = false);
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;
  ~Watchdog();

  /// Records the section that begins: `watchdog.mark("forward b3.mlp m0", step)`. extra_seconds: added to the limit,
  /// for work that is known to take longer (the first step, a checkpoint).
  void mark(std::string_view section, long step, double extra_seconds = 0);
  /// deadline.timeout_seconds of the marks that follow.
  void set_timeout(double seconds);
  /// When the last mark was made.
  [[nodiscard]] mpi::Clock::time_point marked();
  /// Nothing is expected until the next mark.
  void rest();

 private:
  void watch(const std::stop_token& stop);
  [[nodiscard]] std::string overdue();

  mpi::Deadline deadline_;
  const mpi::FlightRecorder* recorder_;
  std::mutex mutex_;
  std::condition_variable_any wake_;
  std::string section_;
  long step_ = 0;
  mpi::Clock::time_point marked_{};
  std::optional<double> allowed_seconds_;  ///< since `marked_`; absent: none expected
  std::optional<RunningClock> running_clock_;
  std::jthread thread_;
};

}  // namespace trireme::supervise
