// SPDX-License-Identifier: Apache-2.0
#include "trireme/comm/wait.hpp"

#include <fmt/format.h>
#include <sched.h>
#include <sys/prctl.h>

#include <algorithm>
#include <thread>

#include "trireme/base/error.hpp"
#include "trireme/comm/abort.hpp"

namespace trireme::comm {

namespace {

// The kernel may let a sleep of 5 us take 55 unless the thread asks for precision.
void sleep(std::chrono::microseconds time) {
  thread_local const int precise = prctl(PR_SET_TIMERSLACK, 1000UL);
  static_cast<void>(precise);
  std::this_thread::sleep_for(time);
}

}  // namespace

void Backoff::pause() {
  ++count_;
  if (count_ <= spins) return;
  if (count_ <= spins + yields) {
    sched_yield();
  } else {
    const int sleeps = std::min(count_ - spins - yields, 20);
    sleep(std::chrono::microseconds(5 * sleeps));
  }
}

bool Wait::expired() const {
  return std::chrono::duration<double>(Clock::now() - operation_.started).count() > deadline_->timeout_seconds;
}

void Wait::expire(const std::string& missing) {
  report_hang(*deadline_, recorder_,
              fmt::format("Hang: {} still waits for {} after {} s. That rank, or its node, stopped or left the common "
                          "order of operations: "
                          "look at its last messages. If the step is just slow, raise comm.timeout_seconds.",
                          to_text(operation_), missing, deadline_->timeout_seconds));
}

void report_hang(const Deadline& deadline, const FlightRecorder* recorder, const std::string& message) {
  std::string line = message;
  if (recorder != nullptr && !deadline.dump_path.empty())
    line += recorder->dump(deadline.dump_path, message)
                ? fmt::format(" Operations: {}.", deadline.dump_path)
                : fmt::format(" ({} could not be written.)", deadline.dump_path);
  if (deadline.on_hang) {
    deadline.on_hang(line);
    throw HangError(line);
  }
  abort_job(ExitCode::hang, line);
}

}  // namespace trireme::comm
