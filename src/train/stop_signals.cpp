// SPDX-License-Identifier: Apache-2.0
#include "trireme/train/stop_signals.hpp"

#include <ctime>

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

constexpr std::size_t stack_bytes = std::size_t{64} << 10;

sigset_t held_signals() {
  sigset_t held;
  sigemptyset(&held);
  for (const int signal : {SIGUSR1, SIGUSR2, SIGTERM}) sigaddset(&held, signal);
  return held;
}

}  // namespace

StopSignals::StopSignals() : stack_(stack_bytes) {
  last_signal = 0;
  const sigset_t held = held_signals();
  ::pthread_sigmask(SIG_BLOCK, &held, &mask_before_);
  const stack_t stack{.ss_sp = stack_.data(), .ss_flags = 0, .ss_size = stack_.size()};
  ::sigaltstack(&stack, &stack_before_);
  // For SIGINT, and for threads of libraries that were there before the others were held.
  struct sigaction action {};
  action.sa_handler = note;
  action.sa_flags = SA_RESTART | SA_ONSTACK;
  sigemptyset(&action.sa_mask);
  for (std::size_t i = 0; i < signals.size(); ++i) ::sigaction(signals[i], &action, &before_[i]);
  std::signal(SIGXFSZ, SIG_IGN);
}

StopSignals::~StopSignals() {
  (void)received();  // what comes so late is no reason to end otherwise
  ::pthread_sigmask(SIG_SETMASK, &mask_before_, nullptr);
  for (std::size_t i = 0; i < signals.size(); ++i) ::sigaction(signals[i], &before_[i], nullptr);
  ::sigaltstack(&stack_before_, nullptr);
}

void hold_stop_signals() {
  const sigset_t held = held_signals();
  ::pthread_sigmask(SIG_BLOCK, &held, nullptr);
}

void release_stop_signals() {
  // MPICH takes SIGUSR1 for failed processes, and nothing would come of it.
  struct sigaction before {};
  if (::sigaction(SIGUSR1, nullptr, &before) == 0 && before.sa_handler != SIG_IGN) std::signal(SIGUSR1, SIG_DFL);
  const sigset_t held = held_signals();
  ::pthread_sigmask(SIG_UNBLOCK, &held, nullptr);
}

int StopSignals::received() {
  const sigset_t held = held_signals();
  constexpr timespec at_once{};
  for (int signal = 0; (signal = ::sigtimedwait(&held, nullptr, &at_once)) > 0;) last_signal = signal;
  return last_signal;
}

}  // namespace trireme::train
