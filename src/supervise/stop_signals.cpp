// SPDX-License-Identifier: Apache-2.0
#include "trireme/supervise/stop_signals.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <ctime>
#include <mutex>
#include <utility>

#include "supervise/end_by_signal.hpp"
#include "trireme/base/error.hpp"

namespace trireme::supervise {
namespace {

using Clock = std::chrono::steady_clock;

/// Slurm, and launchers that forward signals, may deliver one request twice.
constexpr std::chrono::seconds same_request{2};

std::atomic<int> last_signal = 0;  // lock-free: a handler may write it
Clock::time_point first_term{};
/// Held from the moment a signal is no longer pending until it is recorded, so that `received` misses none in between.
std::mutex taking;

extern "C" void note(int signal) {
  if (signal == SIGINT && last_signal != 0) {
    std::signal(SIGINT, SIG_DFL);
    std::raise(SIGINT);
  }
  last_signal = signal;
}

/// Accepts a signal that was pending; on the calling thread, which holds `taking`.
void take(int signal) {
  const Clock::time_point now = Clock::now();
  if (signal == SIGTERM && first_term == Clock::time_point{})
    first_term = now;
  else if (signal == SIGTERM && now - first_term > same_request)
    end_by_signal(SIGTERM);
  last_signal = signal;
}

constexpr std::size_t stack_bytes = std::size_t{64} << 10;

/// Under nohup a closed terminal stops nothing.
bool ignored(int signal) {
  struct sigaction now {};
  return ::sigaction(signal, nullptr, &now) == 0 && now.sa_handler == SIG_IGN;
}

sigset_t held_signals() {
  sigset_t held;
  sigemptyset(&held);
  for (const int signal : {SIGUSR1, SIGUSR2, SIGTERM}) sigaddset(&held, signal);
  if (!ignored(SIGHUP)) sigaddset(&held, SIGHUP);
  return held;
}

}  // namespace

StopSignals::StopSignals(std::function<void(int signal)> on_signal)
    : stack_(stack_bytes), wake_(::eventfd(0, EFD_CLOEXEC)) {
  last_signal = 0;
  first_term = Clock::time_point{};
  const sigset_t held = held_signals();
  ::pthread_sigmask(SIG_BLOCK, &held, &mask_before_);
  const stack_t stack{.ss_sp = stack_.data(), .ss_flags = 0, .ss_size = stack_.size()};
  ::sigaltstack(&stack, &stack_before_);
  // For SIGINT, and for threads of libraries that were there before the others were held.
  struct sigaction action {};
  action.sa_handler = note;
  action.sa_flags = SA_RESTART | SA_ONSTACK;
  sigemptyset(&action.sa_mask);
  for (std::size_t i = 0; i < signals.size(); ++i) {
    ::sigaction(signals[i], nullptr, &before_[i]);
    if (signals[i] != SIGHUP || before_[i].sa_handler != SIG_IGN) ::sigaction(signals[i], &action, nullptr);
  }
  const int signals_here = ::signalfd(-1, &held, SFD_CLOEXEC | SFD_NONBLOCK);
  if (wake_ < 0 || signals_here < 0)
    throw EnvironmentError(
        fmt::format("signals cannot be watched: {}; raise the limit of open files (ulimit -n)", std::strerror(errno)));
  thread_ = std::thread([wake = wake_, signals_here, on_signal = std::move(on_signal)] {
    pollfd ends[] = {{.fd = signals_here, .events = POLLIN, .revents = 0},
                     {.fd = wake, .events = POLLIN, .revents = 0}};
    while (ends[1].revents == 0) {
      if (::poll(ends, 2, -1) < 0 && errno != EINTR) break;
      int taken = 0;
      {
        const std::scoped_lock lock(taking);
        for (signalfd_siginfo info{}; ::read(signals_here, &info, sizeof(info)) == sizeof(info);) {
          const auto signal = static_cast<int>(info.ssi_signo);
          take(signal);
          if (taken != SIGTERM) taken = signal;
        }
      }
      if (taken != 0 && on_signal) on_signal(taken);  // may wait: queries do not wait for it
    }
    ::close(signals_here);
  });
}

StopSignals::~StopSignals() {
  (void)::eventfd_write(wake_, 1);
  thread_.join();
  ::close(wake_);
  (void)received();  // a signal this late does not change the end
  ::pthread_sigmask(SIG_SETMASK, &mask_before_, nullptr);
  for (std::size_t i = 0; i < signals.size(); ++i) ::sigaction(signals[i], &before_[i], nullptr);
  ::sigaltstack(&stack_before_, nullptr);
}

void block_stop_signals() {
  const sigset_t held = held_signals();
  ::pthread_sigmask(SIG_BLOCK, &held, nullptr);
}

void unblock_stop_signals() {
  // MPICH treats SIGUSR1 as a failed process and ignores it.
  struct sigaction before {};
  if (::sigaction(SIGUSR1, nullptr, &before) == 0 && before.sa_handler != SIG_IGN) std::signal(SIGUSR1, SIG_DFL);
  const sigset_t held = held_signals();
  ::pthread_sigmask(SIG_UNBLOCK, &held, nullptr);
}

int StopSignals::received() {
  const sigset_t held = held_signals();
  constexpr timespec at_once{};
  const std::scoped_lock lock(taking);
  for (int signal = 0; (signal = ::sigtimedwait(&held, nullptr, &at_once)) > 0;) take(signal);
  return last_signal;
}

}  // namespace trireme::supervise
