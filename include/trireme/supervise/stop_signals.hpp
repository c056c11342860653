// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <csignal>
#include <cstddef>
#include <functional>
#include <thread>
#include <vector>

namespace trireme::supervise {

/// During its lifetime SIGUSR1, SIGUSR2, SIGTERM, SIGINT and, unless ignored, SIGHUP (the terminal was closed) request
/// a stop instead of ending the process; a second SIGINT
/// ends it at once, and so does a second SIGTERM more than two seconds after the first (Slurm sends one request twice).
/// The compute thread is not interrupted: signal handlers on its stack corrupted the heap (one signal in four with
/// oneDNN's fp32 products on AVX-512, never with an alternate stack: those products seem to use the stack pointer
/// for other purposes). Signals therefore stay pending until a dedicated thread or a poll takes them; SIGINT, which
/// must not wait, is handled on an alternate stack.
class StopSignals {
 public:
  /// on_signal: called on a separate thread with the signal taken, or SIGTERM if several were pending and it is
  /// among them; must outlive this.
  explicit StopSignals(std::function<void(int signal)> on_signal = {});
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;
  ~StopSignals();

  /// The latest signal; 0: none. For the thread that made the object.
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

/// Blocks SIGUSR1, SIGUSR2, SIGTERM and SIGHUP in this thread and those that it starts: before MPI_Init, so that a
/// signal during the start ends no rank. For the first thread, before there are others. StopSignals takes the pending
/// ones.
void block_stop_signals();
/// Unblocks them: they end the process again, also the pending ones.
void unblock_stop_signals();

}  // namespace trireme::supervise
