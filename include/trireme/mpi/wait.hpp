// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "trireme/mpi/deadline.hpp"
#include "trireme/mpi/flight.hpp"

namespace trireme::mpi {

/// Back-off of waiting lanes, for shared cores: a few tests in a row, then yielding the core, then sleeping an eighth
/// of the time waited so far, up to a millisecond. It never spins for long, and its delay is small.
class Backoff {
 public:
  /// Passes a very short time, or returns false: then it is time to sleep, and worth looking at a clock.
  [[nodiscard]] bool brief();
  void sleep();

 private:
  static constexpr int spins = 20;
  static constexpr int yields = 50;
  int count_ = 0;
  Clock::time_point began_{};
};

/// All waiting of one collective: with back-off, until its deadline.
class Wait {
 public:
  Wait(Operation operation, const Deadline& deadline, const FlightRecorder& recorder)
      : operation_(std::move(operation)), deadline_(&deadline), recorder_(&recorder) {}

  /// Returns when `done()` is true. missing: returns the names of the awaited ranks; called only when the deadline has
  /// passed.
  template <class Done, class Missing>
  void until(Done&& done, Missing&& missing) {
    until(done, missing, [](Backoff& backoff) { backoff.sleep(); });
  }
  /// The same; sleep: sleeps until something may have changed, a second at most.
  template <class Done, class Missing, class Sleep>
  void until(Done&& done, Missing&& missing, Sleep&& sleep) {
    Backoff backoff;
    while (!done()) {
      if (backoff.brief()) continue;
      if (expired()) expire(missing());
      sleep(backoff);
    }
  }

  /// Reports that the connection to a rank of `missing` is lost, as `report_lost_rank`.
  void lose(const std::string& missing);

  [[nodiscard]] const Operation& operation() const { return operation_; }

 private:
  [[nodiscard]] bool expired() const;
  void expire(const std::string& missing);

  Operation operation_;
  const Deadline* deadline_;
  const FlightRecorder* recorder_;
};

/// Reports a hang: writes the recorder to the deadline's dump_path, then calls its `on_hang`, or else ends the job with
/// exit code 7.
void report_hang(const Deadline& deadline, const FlightRecorder* recorder, const std::string& message);

/// Reports that another rank has ended, before any deadline: the same, but waits two seconds at most for a sign which
/// rank that was, or for the message of a rank that ends the job for another reason.
void report_lost_rank(const Deadline& deadline, const FlightRecorder* recorder, const std::string& message);

}  // namespace trireme::mpi
