// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <optional>
#include <string>

#include "train/save/emergency_save.hpp"
#include "trireme/config/run_config.hpp"
#include "trireme/mpi/communicator.hpp"
#include "trireme/supervise/stop_signals.hpp"
#include "trireme/supervise/time_limit.hpp"

namespace trireme::train {

/// Whether a run that saves checkpoints has to stop: for a signal to any rank, or because the job's time ends, by the
/// first rank's clock. Other runs are ended by their signals.
class Stopping {
 public:
  /// world: outlives this. stop_command: safe way to stop a run, for the message after other signals.
  Stopping(const config::RunConfig& config, const mpi::Communicator& world, std::string stop_command);

  /// On the first rank: starts to observe the end of the job. rank_bytes: bytes that a rank writes in a save.
  void watch_time(std::optional<double> before_limit, std::int64_t rank_bytes) {
    time_limit_.emplace(before_limit, rank_bytes);
  }
  /// Notifies `save` of signals that a kill may follow soon. save: outlives this.
  void tell(EmergencySave& save) { emergency_ = &save; }
  /// Records durations; the longest counts.
  void took(const supervise::Durations& durations);

  /// On the first rank: the run stops after its next save, so that `trireme supervise` replaces `nodes`. Empty: none.
  void replace_after_save(const std::string& nodes) { replaced_ = nodes; }
  /// Checked after a save. Once true, always true. Collective over the world.
  [[nodiscard]] bool asked_after_save();

  /// Checked before every step and every batch of an evaluation. Once true, always true. Collective over the world.
  [[nodiscard]] bool asked();
  [[nodiscard]] bool out_of_time() const { return out_of_time_; }
  /// The nodes because of which the run stops; on the first rank.
  [[nodiscard]] const std::string& replaced() const { return replaced_; }

 private:
  [[nodiscard]] bool time_is_up();
  /// Called by the thread that takes signals, too.
  void heard(int signal);
  void announce(int signal);

  const mpi::Communicator& world_;
  std::string stop_command_;
  std::atomic<EmergencySave*> emergency_ = nullptr;
  std::atomic_flag announced_;
  std::atomic<double> step_seconds_ = 0;            ///< of the longest step, for the thread that takes signals
  std::optional<supervise::StopSignals> signals_;   ///< absent: nothing to save, signals end the run
  std::optional<supervise::TimeLimit> time_limit_;  ///< on the first rank
  supervise::Durations longest_;
  std::string replaced_;
  bool asked_ = false;
  bool out_of_time_ = false;
};

}  // namespace trireme::train
