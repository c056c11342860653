// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <csignal>
#include <cstddef>
#include <functional>
#include <thread>
#include <vector>

namespace trireme::supervise {

/// While one lives, SIGUSR1, SIGUSR2, SIGTERM, SIGINT and, unless it is ignored, SIGHUP (the terminal was closed) ask
/// for a stop instead of ending the process; a second SIGINT
/// ends it at once, and so does a second SIGTERM more than two seconds after the first (Slurm sends one request twice).
/// For the thread that computes, which is not interrupted: handlers on its stack broke the heap (seen with oneDNN's
/// fp32 products on AVX-512, one signal in four, and never with a stack of their own: those products seem to use the
/// stack pointer otherwise). So signals wait for a thread that takes them, or until they are asked for; SIGINT, which
/// must not wait, has a stack of its own.
class StopSignals {
 public:
  /// on_signal: called on a thread of its own with what that thread takes, of several at once with SIGTERM if it is
  /// among them; must outlive this.
  explicit StopSignals(std::function<void(int signal)> on_signal = {});
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;
  ~StopSignals();

  /// Which one has come last; 0: none. For the thread that made the object.
  [[nodiscard]] static int received();

 private:
  static constexpr std::array signals{SIGUSR1, SIGUSR2, SIGTERM, SIGHUP, SIGINT};
  std::array<struct sigaction, signals.size()> before_{};
  sigset_t mask_before_{};
  std::vector<std::byte> stack_;
  stack_t stack_before_{};
  int wake_;
  std::thread thread_;
};

/// Holds SIGUSR1, SIGUSR2, SIGTERM and SIGHUP back, in this thread and those that it starts: from before MPI begins, so
/// that one that comes while ranks start ends none of them. For the first thread, before there are others. StopSignals
/// finds what came.
void block_stop_signals();
/// Lets them end the process again, also those that came in between.
void unblock_stop_signals();

}  // namespace trireme::supervise
