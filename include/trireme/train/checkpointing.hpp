// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trireme/checkpoint/save.hpp"
#include "trireme/comm/communicator.hpp"
#include "trireme/train/job.hpp"

namespace trireme::train {

/// Whether a run writes checkpoints of its own accord.
[[nodiscard]] bool saves_checkpoints(const config::RunConfig& config);

/// What the order of a run's samples depends on, token files by their contents: a run that goes on must find the same.
[[nodiscard]] checkpoint::Facts data_facts(const config::RunConfig& config);

/// Masters and moments of this rank as checkpoints hold them. The job must outlive them.
[[nodiscard]] checkpoint::Shards shards_of(Job& job);

/// The checkpoints of one run: where it begins, and what it leaves behind.
class Checkpointing {
 public:
  /// Collective over `world`, whose ranks are the job's.
  Checkpointing(Job& job, const comm::Communicator& world);

  /// Fills the job's parameters and moments as `checkpoint.resume` says, or with first parameters, and says where the
  /// run stands. `auto` passes over damaged checkpoints with a warning. Collective. Throws CheckpointError when
  /// checkpoints are there and none can be used, or one is of another model or of other token files.
  [[nodiscard]] checkpoint::State begin();

  /// Whether a checkpoint is due after step `step` (from 0).
  [[nodiscard]] bool due_after(std::int64_t step) const;

  /// Saves `state` and the job's tensors, unless that step has been saved; replicas are compared first. Collective;
  /// lanes at rest. Throws WriteError, NumericsError. Returns what to say about it; empty when there was nothing to do.
  [[nodiscard]] std::string save(checkpoint::State state);

  /// Whether a stop was asked for on any rank. Collective.
  [[nodiscard]] bool stop_requested(bool here) const;

 private:
  [[nodiscard]] std::vector<std::string> candidates() const;
  [[nodiscard]] checkpoint::State fresh();
  [[nodiscard]] checkpoint::State resumed(const std::string& path, checkpoint::State state);
  void check_data(const std::string& path, checkpoint::State& state) const;

  Job& job_;
  comm::Communicator world_;
  checkpoint::Facts data_;
  std::int64_t base_step_ = 0;
  std::int64_t saved_step_ = -1;
};

}  // namespace trireme::train
