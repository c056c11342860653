// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "trireme/config/load.hpp"
#include "trireme/model/model.hpp"
#include "trireme/planner/replay.hpp"
#include "trireme/schedule/op.hpp"

/// Memory and traffic of a step of any number of microbatches.
namespace trireme::planner {

/// What one rank holds and moves in a step.
struct RankBytes {
  Memory memory;
  Traffic traffic;
  std::int64_t ops = 0;     ///< in the schedule of all microbatches
  schedule::Schedule step;  ///< of at most four microbatches
};

/// The values that the schedule of all microbatches has. At most four are built: every further one holds and moves what
/// the fourth does. Without a pipeline. verified: see schedule::build_step(). `config`: complete, `sync.policy`
/// resolved.
[[nodiscard]] RankBytes bytes_of_rank(const config::RunConfig& config, const config::Resolved& mesh,
                                      const model::Model& model, bool verified = true);

/// b + times * (b - a): what b moves, and `times` more of what it moves more than a.
[[nodiscard]] Traffic extrapolated(const Traffic& a, Traffic b, std::int64_t times);

}  // namespace trireme::planner
