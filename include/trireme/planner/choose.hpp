// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>

#include "trireme/config/load.hpp"
#include "trireme/model/model.hpp"

namespace trireme::planner {

/// Mesh and model of a run.
struct Trainable {
  config::Resolved mesh;
  model::Model model;  ///< of tensor rank 0
};

/// Mesh and model of `config`, which is complete, on `ranks` ranks; used by `plan` and `train`, which thus accept the
/// same run files. Throws ConfigError if it cannot be trained, before a schedule is built.
[[nodiscard]] Trainable trainable(const config::RunConfig& config, int ranks);

/// Throws ConfigError for globs of precision.fp8_skip, optimizer.no_decay and optimizer.groups that fit no parameter of
/// a whole `model`.
void require_globs(const config::RunConfig& config, const model::Model& model);

/// Result of `sync.policy = "auto"`.
struct Choice {
  config::Sync sync;   ///< with a policy that is not automatic
  std::string reason;  ///< tried candidates with their bytes and seconds, and the chosen one; empty if there was
                       ///< nothing to choose
};

/// Predicted seconds of a step, and the machine of the prediction.
struct StepPredictor {
  std::function<double(const config::RunConfig&)> seconds;
  std::string machine;
};

/// Resolves `sync.policy = "auto"`. Candidates, by increasing traffic: deferred with parameters kept
/// until the update, deferred without reshard, deferred with reshard, immediate without reshard,
/// immediate with reshard. Takes the one with the shortest step predicted by `step` (step_seconds_on)
/// among those whose bytes fit memory.budget (replay_memory, without libtorch's workspace other than
/// the head's on a GPU and without communication staging); one that is less than 0.5% slower than a
/// later candidate is preferred. Without `step`: the least traffic that fits. Any other policy is
/// returned unchanged. Throws ConfigError with the bytes of each when none fits.
[[nodiscard]] Choice choose_sync(const config::RunConfig& config, const model::Model& model,
                                 const config::Resolved& mesh, const StepPredictor& step = {});

}  // namespace trireme::planner
