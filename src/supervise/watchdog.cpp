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

double seconds(mpi::Clock::duration d) { return std::chrono::duration<double>(d).count(); }

}  // namespace

Watchdog::Watchdog(mpi::Deadline deadline, const mpi::FlightRecorder* recorder, std::string_view start)
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
  marked_ = mpi::Clock::now();
  expires_ = marked_ + bounded_duration(deadline_.timeout_seconds + extra_seconds);
}

mpi::Clock::time_point Watchdog::marked() {
  const std::scoped_lock lock(mutex_);
  return marked_;
}

void Watchdog::rest() {
  const std::scoped_lock lock(mutex_);
  expires_ = mpi::Clock::time_point::max();
}

std::string Watchdog::overdue() {
  const mpi::Clock::time_point now = mpi::Clock::now();
  {
    std::unique_lock lock(mutex_);
    bool late = now > expires_;
    if (late && deadline_.last_progress) {
      lock.unlock();  // a file system may make it wait
      const mpi::Clock::time_point last = deadline_.last_progress();
      lock.lock();
      late = now > expires_ && seconds(now - last) > deadline_.timeout_seconds;
    }
    if (late)
      return fmt::format("Hang: {} has been in \"{}\" for {:.0f} s. If it is just slow, raise comm.timeout_seconds.",
                         step_ == no_step ? "the start" : fmt::format("step {}", step_), section_,
                         seconds(now - marked_));
  }
  if (recorder_ != nullptr)
    for (const mpi::Operation& operation : recorder_->in_flight())
      if (seconds(now - operation.started) > grace * deadline_.timeout_seconds)
        return fmt::format(
            "Hang: {} has been inside MPI for {:.0f} s. Another rank, or its node, stopped: look at its last messages.",
            to_text(operation), seconds(now - operation.started));
  return {};
}

void Watchdog::watch(const std::stop_token& stop) {
  const mpi::Clock::duration look = bounded_duration(std::clamp(deadline_.timeout_seconds / 20, 0.01, 1.0));
  while (!stop.stop_requested()) {
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
