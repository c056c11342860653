// SPDX-License-Identifier: Apache-2.0
#include "trireme/comm/watchdog.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "trireme/comm/wait.hpp"

namespace trireme::comm {
namespace {

// A collective looks at its own deadline; only one that is stuck inside MPI needs to be found from outside.
constexpr double grace = 1.1;

constexpr long no_step = -1;

/// At most 30 years, so that a point of time from now on can be counted, whatever a run file says.
Clock::duration duration(double seconds) {
  constexpr double longest_seconds = 1e9;
  return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(std::min(seconds, longest_seconds)));
}
double seconds(Clock::duration d) { return std::chrono::duration<double>(d).count(); }

}  // namespace

Watchdog::Watchdog(Deadline deadline, const FlightRecorder* recorder, std::string_view start)
    : deadline_(std::move(deadline)),
      recorder_(recorder),
      thread_([this](const std::stop_token& stop) { watch(stop); }) {
  if (!start.empty()) mark(start, no_step);
}

Watchdog::~Watchdog() = default;

void Watchdog::mark(std::string_view section, long step, double extra_seconds) {
  const std::scoped_lock lock(mutex_);
  section_ = section;
  step_ = step;
  marked_ = Clock::now();
  expires_ = marked_ + duration(deadline_.timeout_seconds + extra_seconds);
}

Clock::time_point Watchdog::marked() {
  const std::scoped_lock lock(mutex_);
  return marked_;
}

void Watchdog::rest() {
  const std::scoped_lock lock(mutex_);
  expires_ = Clock::time_point::max();
}

std::string Watchdog::overdue() {
  const Clock::time_point now = Clock::now();
  {
    std::unique_lock lock(mutex_);
    bool late = now > expires_;
    if (late && deadline_.last_progress) {
      lock.unlock();  // a file system may make it wait
      const Clock::time_point last = deadline_.last_progress();
      lock.lock();
      late = now > expires_ && seconds(now - last) > deadline_.timeout_seconds;
    }
    if (late)
      return fmt::format("Hang: {} has been in \"{}\" for {:.0f} s. If it is just slow, raise comm.timeout_seconds.",
                         step_ == no_step ? "the start" : fmt::format("step {}", step_), section_,
                         seconds(now - marked_));
  }
  if (recorder_ != nullptr)
    for (const Operation& operation : recorder_->in_flight())
      if (seconds(now - operation.started) > grace * deadline_.timeout_seconds)
        return fmt::format(
            "Hang: {} has been inside MPI for {:.0f} s. Another rank, or its node, stopped: look at its last messages.",
            to_text(operation), seconds(now - operation.started));
  return {};
}

void Watchdog::watch(const std::stop_token& stop) {
  const Clock::duration look = duration(std::clamp(deadline_.timeout_seconds / 20, 0.01, 1.0));
  while (!stop.stop_requested()) {
    if (const std::string message = overdue(); !message.empty()) {
      try {
        report_hang(deadline_, recorder_, message);
      } catch (const std::exception&) {  // a test's deadline: reported once
        return;
      }
    }
    std::unique_lock lock(mutex_);
    wake_.wait_for(lock, stop, look, [] { return false; });
  }
}

}  // namespace trireme::comm
