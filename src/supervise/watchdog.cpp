// SPDX-License-Identifier: Apache-2.0
#include "trireme/supervise/watchdog.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "supervise/bounded_duration.hpp"
#include "trireme/mpi/wait.hpp"

namespace trireme::supervise {
namespace {

// A collective looks at its own deadline; only one that is stuck inside MPI needs to be found from outside.
constexpr double grace = 1.1;

}  // namespace

Watchdog::Watchdog(mpi::Deadline deadline, const mpi::FlightRecorder* recorder, std::string_view start,
                   bool detects_stops)
    : deadline_(std::move(deadline)), recorder_(recorder) {
  if (detects_stops) running_clock_.emplace();
  if (!start.empty()) mark(start, no_step);
  thread_ = std::jthread([this](const std::stop_token& stop) { watch(stop); });
}

Watchdog::~Watchdog() = default;

void Watchdog::set_timeout(double seconds) {
  const std::scoped_lock lock(mutex_);
  deadline_.timeout_seconds = seconds;
}

void Watchdog::mark(std::string_view section, long step, double extra_seconds) {
  const std::scoped_lock lock(mutex_);
  section_ = section;
  step_ = step;
  marked_ = mpi::Clock::now();
  allowed_seconds_ = deadline_.timeout_seconds + extra_seconds;
}

mpi::Clock::time_point Watchdog::marked() {
  const std::scoped_lock lock(mutex_);
  return marked_;
}

void Watchdog::rest() {
  const std::scoped_lock lock(mutex_);
  allowed_seconds_.reset();
}

std::string Watchdog::overdue() {
  double timeout_seconds = 0;
  {
    std::unique_lock lock(mutex_);
    timeout_seconds = deadline_.timeout_seconds;
    const auto is_late = [&] { return allowed_seconds_ && running_seconds(marked_) > *allowed_seconds_; };
    bool late = is_late();
    if (late && deadline_.last_progress) {
      lock.unlock();  // a file system may make it wait
      const mpi::Clock::time_point last = deadline_.last_progress();
      lock.lock();
      late = is_late() && running_seconds(last) > timeout_seconds;
    }
    if (late)
      return fmt::format("Hang: {} has been in \"{}\" for {:.0f} s. If it is just slow, raise comm.timeout_seconds.",
                         step_ == no_step  ? "the start"
                         : step_ == at_end ? "the end"
                                           : fmt::format("step {}", step_),
                         section_, running_seconds(marked_));
  }
  if (recorder_ != nullptr)
    for (const mpi::Operation& operation : recorder_->in_flight())
      if (const double inside = running_seconds(operation.started); inside > grace * timeout_seconds)
        return fmt::format(
            "Hang: {} has been inside MPI for {:.0f} s. Another rank, or its node, stopped: look at its last messages.",
            to_text(operation), inside);
  return {};
}

void Watchdog::watch(const std::stop_token& stop) {
  while (!stop.stop_requested()) {
    mpi::Clock::duration look;
    {
      const std::scoped_lock lock(mutex_);
      look = bounded_duration(std::clamp(deadline_.timeout_seconds / 20, 0.01, 1.0));
    }
    if (running_clock_) running_clock_->tick(look);
    if (const std::string message = overdue(); !message.empty()) {
      try {
        mpi::report_hang(deadline_, recorder_, message);
      } catch (const std::exception&) {  // a test's deadline: reported once
        return;
      }
    }
    std::unique_lock lock(mutex_);
    wake_.wait_for(lock, stop, look, [] { return false; });
  }
}

}  // namespace trireme::supervise
