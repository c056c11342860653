// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "trireme/checkpoint/manifest.hpp"
#include "trireme/config/run_config.hpp"
#include "trireme/executor/executor.hpp"

namespace trireme::train {

/// Counts the steps that update nothing: those whose loss or norm is not finite or a spike, and those without a target
/// that counts.
class SkippedSteps {
 public:
  /// most: consecutive skipped steps that end the run, at least 1. rank: the first one prints.
  SkippedSteps(std::int64_t most, int rank) : most_(most), rank_(rank) {}

  /// Updates the counts in `state`. Warns of each spike and each step that is not finite, and of the first one without
  /// targets. step: from 0.
  void count(checkpoint::State& state, const executor::StepResult& result, std::int64_t step);
  /// Throws NumericsError on rank 0 after the last of too many skipped steps in a row, with the last checkpoint before
  /// them; all ranks count alike, so the others wait for the end of the job.
  void abort_after_too_many(const checkpoint::State& state, const executor::StepResult& result, std::int64_t step,
                            const config::Checkpoint& checkpoints) const;

 private:
  std::int64_t most_;
  int rank_;
  bool warned_of_no_targets_ = false;
};

}  // namespace trireme::train
