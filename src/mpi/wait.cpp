// SPDX-License-Identifier: Apache-2.0
#include "trireme/mpi/wait.hpp"

#include <fmt/format.h>
#include <sched.h>
#include <sys/prctl.h>

#include <algorithm>
#include <mutex>
#include <thread>

#include "mpi/await.hpp"
#include "trireme/base/error.hpp"
#include "trireme/base/running_time.hpp"
#include "trireme/mpi/abort.hpp"

namespace trireme::mpi {

bool Backoff::brief() {
  if (count_ == spins + yields) return false;
  if (++count_ > spins) sched_yield();
  if (count_ == spins + yields) began_ = Clock::now();
  return true;
}

void Backoff::sleep() {
  using std::chrono::microseconds;
  // With the default timer slack, a sleep of 5 us may take 55.
  thread_local const int precise = prctl(PR_SET_TIMERSLACK, 1000UL);
  static_cast<void>(precise);
  const auto waited = std::chrono::duration_cast<microseconds>(Clock::now() - began_);
  std::this_thread::sleep_for(std::clamp(waited / 8, microseconds(5), microseconds(1000)));
}

bool Deadline::passed(Clock::time_point since) const {
  if (Clock::now() - since <= std::chrono::duration<double>(timeout_seconds)) return false;
  return running_seconds(since) > timeout_seconds &&
         (!last_progress || running_seconds(last_progress()) > timeout_seconds);
}

bool Wait::expired() const { return deadline_->passed(operation_.started); }

void Wait::expire(const std::string& missing) {
  report_hang(*deadline_, recorder_,
              fmt::format("Hang: {} still waits for {} after {} s. That rank, or its node, stopped or left the common "
                          "order of operations: "
                          "look at its last messages. If the step is just slow, raise comm.timeout_seconds.",
                          to_text(operation_), missing, deadline_->timeout_seconds));
}

void report_late(const Deadline& deadline, std::string_view what) {
  const std::string task = task_of_this_thread();
  report_hang(deadline, nullptr,
              fmt::format("Hang: this rank has waited {} s for the others to {}{}. One of them, or its node or file "
                          "system, stopped: look at its last messages. If it is just slow, raise comm.timeout_seconds.",
                          deadline.timeout_seconds, what, task.empty() ? "" : fmt::format(" ({})", task)));
}

void Wait::lose(const std::string& missing) {
  report_lost_rank(
      *deadline_, recorder_,
      fmt::format("Hang: {} lost the connection to {}. That rank, or its node, has ended: look at its last "
                  "messages.",
                  to_text(operation_), missing));
}

namespace {

/// Writes the recorder to the deadline's dump_path. Returns `message` with the name of the file.
std::string dumped(const Deadline& deadline, const FlightRecorder* recorder, const std::string& message) {
  std::string line = message;
  if (deadline.dump_path.empty()) return line;
  static std::mutex one_at_a_time;  // several lanes may be late
  static std::string last;
  const std::scoped_lock lock(one_at_a_time);
  // Without a recorder the report has no operations: it only proves that this rank was able to write one.
  if (recorder == nullptr && last == deadline.dump_path) return line;
  const FlightRecorder none;
  if (!(recorder != nullptr ? recorder : &none)->dump(deadline.dump_path, message))
    line += fmt::format(" ({} could not be written.)", deadline.dump_path);
  else if (recorder != nullptr)
    line += fmt::format(" Operations: {}.", deadline.dump_path);
  last = deadline.dump_path;
  return line;
}

double seconds_since(Clock::time_point began) { return std::chrono::duration<double>(Clock::now() - began).count(); }

[[noreturn]] void end_of_hang(const Deadline& deadline, const std::string& line) {
  abort_job(ExitCode::hang, line,
            [silent_ranks = deadline.silent_ranks, named = line.find("No longer running") != std::string::npos] {
              std::string more;
              if (const std::string ended = named ? std::string() : ended_ranks(); !ended.empty())
                more += fmt::format(" No longer running: {}.", ended);
              const std::string silent = silent_ranks ? silent_ranks() : std::string();
              if (!silent.empty()) more += fmt::format(" Wrote nothing: {}.", silent);
              return more;
            });
}

}  // namespace

void report_hang(const Deadline& deadline, const FlightRecorder* recorder, const std::string& message) {
  const std::string line = dumped(deadline, recorder, message);
  if (deadline.on_hang) {
    deadline.on_hang(line);
    throw HangError(line);
  }
  // The other ranks wait too: gives them time to write their reports, before this one ends them.
  constexpr double most_seconds = 5;
  std::this_thread::sleep_for(std::chrono::duration<double>(std::min(most_seconds, deadline.timeout_seconds / 2)));
  end_of_hang(deadline, line);
}

void report_lost_rank(const Deadline& deadline, const FlightRecorder* recorder, const std::string& message) {
  constexpr double most_seconds = 2, others_write = 0.5;
  const Clock::time_point began = Clock::now();
  std::string ended = ended_ranks();
  if (!deadline.on_hang)
    for (; ended.empty() && seconds_since(began) < most_seconds; ended = ended_ranks())
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
  // Also into the file: a launcher that ends the job may drop later output of the ranks.
  const std::string line =
      dumped(deadline, recorder, ended.empty() ? message : fmt::format("{} No longer running: {}.", message, ended));
  if (deadline.on_hang) {
    deadline.on_hang(line);
    throw HangError(line);
  }
  std::this_thread::sleep_for(std::chrono::duration<double>(others_write));
  end_of_hang(deadline, line);
}

}  // namespace trireme::mpi
