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

}  // namespace trireme::train
