// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <csignal>

namespace trireme::train {

/// While one lives, SIGUSR1, SIGUSR2, SIGTERM and SIGINT ask for a stop instead of ending the process; a second SIGINT
/// ends it at once. A file that grows beyond its limit fails with an error, not with a signal.
class StopSignals {
 public:
  StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;
  ~StopSignals();

  /// Whether one has come; which one.
  [[nodiscard]] static int received();

 private:
  static constexpr std::array signals{SIGUSR1, SIGUSR2, SIGTERM, SIGINT};
  std::array<struct sigaction, signals.size()> before_{};
};

/// Holds SIGUSR1, SIGUSR2 and SIGTERM back until `release_stop_signals`: from before MPI begins until a run can answer
/// them, so that one that comes while ranks start ends none of them. For the first thread, before there are others.
void hold_stop_signals();
/// What came in between is answered now.
void release_stop_signals();

}  // namespace trireme::train
