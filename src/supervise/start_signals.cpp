// SPDX-License-Identifier: Apache-2.0
#include "trireme/supervise/start_signals.hpp"

#include <csignal>
#include <ctime>

#include "supervise/end_by_signal.hpp"

namespace trireme::supervise {
namespace {

/// Waits for SIGTERM, which is blocked, until a stop is requested.
void wait_for_end(const std::stop_token& stop) {
  sigset_t ends;
  sigemptyset(&ends);
  sigaddset(&ends, SIGTERM);
  constexpr timespec look{.tv_sec = 0, .tv_nsec = 50'000'000};
  while (!stop.stop_requested())
    if (const int signal = ::sigtimedwait(&ends, nullptr, &look); signal > 0) end_by_signal(signal);
}

}  // namespace

// Its thread inherits the mask, so that the signal stays pending until sigtimedwait takes it.
StartSignals::StartSignals() : thread_([](const std::stop_token& stop) { wait_for_end(stop); }) {}

}  // namespace trireme::supervise
