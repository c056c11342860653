// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "trireme/comm/deadline.hpp"
#include "trireme/comm/flight.hpp"

namespace trireme::comm {

/// How a lane waits where ranks share cores: a few tests in a row, then giving the core away, then sleeping ever longer
/// up to 100 microseconds. Never spins for long.
class Backoff {
 public:
  /// Lets time pass before the next test.
  void pause();
  /// True once it sleeps: only then is it worth looking at a clock.
  [[nodiscard]] bool slow() const { return count_ > spins + yields; }

 private:
  static constexpr int spins = 20;
  static constexpr int yields = 50;
  int count_ = 0;
};

/// All waiting of one collective: with back-off, until its deadline.
class Wait {
 public:
  Wait(Operation operation, const Deadline& deadline, const FlightRecorder& recorder)
      : operation_(std::move(operation)), deadline_(&deadline), recorder_(&recorder) {}

  /// Returns when `done()` is true. missing: names the ranks that are waited for, asked only when the deadline has
  /// passed.
  template <class Done, class Missing>
  void until(Done&& done, Missing&& missing) {
    for (Backoff backoff; !done(); backoff.pause())
      if (backoff.slow() && expired()) expire(missing());
  }

  [[nodiscard]] const Operation& operation() const { return operation_; }

 private:
  [[nodiscard]] bool expired() const;
  void expire(const std::string& missing);

  Operation operation_;
  const Deadline* deadline_;
  const FlightRecorder* recorder_;
};

/// Reports a hang: dumps the recorder where the deadline says so, then its `on_hang`, or the end of the job with exit
/// code 7.
void report_hang(const Deadline& deadline, const FlightRecorder* recorder, const std::string& message);

}  // namespace trireme::comm
