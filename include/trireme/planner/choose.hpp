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

/// Those of `config`, whose model is complete, on `ranks` ranks: `plan` and `train` accept the same run files by it.
/// Throws ConfigError where it cannot be trained, before a schedule is built.
[[nodiscard]] Trainable trainable(const config::RunConfig& config, int ranks);

/// Throws ConfigError for globs of precision.fp8_skip and optimizer.no_decay that fit no parameter of a whole `model`.
void require_globs(const config::RunConfig& config, const model::Model& model);

/// What `sync.policy = "auto"` came to.
struct Choice {
  config::Sync sync;   ///< with a policy that is not automatic
  std::string reason;  ///< which candidates were tried, what each needs and takes, which was taken; empty when nothing
                       ///< was to be chosen
};

/// Predicted seconds of a step, and on what they are predicted.
struct StepPredictor {
  std::function<double(const config::RunConfig&)> seconds;
  std::string machine;
};

/// Resolves `sync.policy = "auto"`: of deferred with parameters kept until the update, deferred without reshard,
/// deferred with reshard, immediate without reshard, immediate with reshard, the one with the shortest predicted step
/// of those whose predicted bytes (replay_memory: all but libtorch's workspace, on a GPU the head's excepted, and
/// communication staging) fit memory.budget; they are ordered by traffic, and one that is less than 0.5% slower than a
/// later one is taken. `step` (step_seconds_on) predicts; without it the
/// least traffic that fits is taken. Any other policy is returned as it is. Throws ConfigError when none fits, with
/// what each needs.
[[nodiscard]] Choice choose_sync(const config::RunConfig& config, const model::Model& model,
                                 const config::Resolved& mesh, const StepPredictor& step = {});

}  // namespace trireme::planner
