// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "trireme/config/run_config.hpp"
#include "trireme/mpi/communicator.hpp"
#include "trireme/supervise/heartbeat.hpp"
#include "trireme/supervise/watchdog.hpp"
#include "trireme/train/engine/job.hpp"

namespace trireme::train {

/// Supervises one run, so that a hang ends the job with a report: the watchdog of this rank, the heartbeat of ranks
/// that work on files, and the deadlines of all that waits for other ranks.
class Supervision {
 public:
  /// Starts to watch. Collective over `world`; config outlives this.
  Supervision(const config::RunConfig& config, const mpi::Communicator& world);

  /// The ranks of the run. Waits on this communicator and those derived from it time out unless there is progress, here
  /// or on a rank that works on files.
  [[nodiscard]] const mpi::Communicator& world() const { return world_; }
  /// Sets the path of this rank's hang report, and the collectives' query for silent ranks.
  void apply_to(JobOptions& options);

  /// `what` begins, in step `step` (from 0).
  void mark(const std::string& what, std::int64_t step) { watchdog_.mark(what, step); }
  /// Work on files begins: the watchdog and the other ranks take bytes that move for progress while the result lives.
  [[nodiscard]] supervise::FileWork file_work(const std::string& what, std::int64_t step);
  /// Nothing is expected until the next mark.
  void rest() { watchdog_.rest(); }

 private:
  [[nodiscard]] std::string dump_path() const;

  const config::RunConfig& config_;
  supervise::Heartbeat heartbeat_;
  mpi::Communicator world_;
  supervise::Watchdog watchdog_;
};

}  // namespace trireme::train
