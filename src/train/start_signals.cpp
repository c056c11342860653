// SPDX-License-Identifier: Apache-2.0
#include "trireme/train/start_signals.hpp"

#include <csignal>
#include <ctime>

namespace trireme::train {
namespace {

/// Ends the process by `signal`, as if nothing had held it.
void end_by(int signal) {
  std::signal(signal, SIG_DFL);
  sigset_t one;
  sigemptyset(&one);
  sigaddset(&one, signal);
  ::pthread_sigmask(SIG_UNBLOCK, &one, nullptr);
  std::raise(signal);
}

void wait_for_end(const std::stop_token& stop) {
  sigset_t ends;
  sigemptyset(&ends);
  sigaddset(&ends, SIGTERM);
  constexpr timespec look{.tv_sec = 0, .tv_nsec = 50'000'000};
  while (!stop.stop_requested())
    if (const int signal = ::sigtimedwait(&ends, nullptr, &look); signal > 0) end_by(signal);
}

}  // namespace

// Its thread inherits the mask, so that the signal stays pending until it is asked for.
StartSignals::StartSignals() : thread_([](const std::stop_token& stop) { wait_for_end(stop); }) {}

}  // namespace trireme::train
