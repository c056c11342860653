// SPDX-License-Identifier: Apache-2.0
#include "trireme/train/stop_signals.hpp"

namespace trireme::train {
namespace {

volatile std::sig_atomic_t last_signal = 0;  // a handler can reach nothing else

extern "C" void note(int signal) {
  if (signal == SIGINT && last_signal != 0) {
    std::signal(SIGINT, SIG_DFL);
    std::raise(SIGINT);
  }
  last_signal = signal;
}

}  // namespace

StopSignals::StopSignals() {
  last_signal = 0;
  struct sigaction action {};
  action.sa_handler = note;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  for (std::size_t i = 0; i < signals.size(); ++i) ::sigaction(signals[i], &action, &before_[i]);
  std::signal(SIGXFSZ, SIG_IGN);
}

StopSignals::~StopSignals() {
  for (std::size_t i = 0; i < signals.size(); ++i) ::sigaction(signals[i], &before_[i], nullptr);
}

namespace {

sigset_t held_signals() {
  sigset_t held;
  sigemptyset(&held);
  for (const int signal : {SIGUSR1, SIGUSR2, SIGTERM}) sigaddset(&held, signal);
  return held;
}

}  // namespace

void hold_stop_signals() {
  const sigset_t held = held_signals();
  ::pthread_sigmask(SIG_BLOCK, &held, nullptr);
}

void release_stop_signals() {
  const sigset_t held = held_signals();
  ::pthread_sigmask(SIG_UNBLOCK, &held, nullptr);
}

int StopSignals::received() { return last_signal; }

}  // namespace trireme::train
