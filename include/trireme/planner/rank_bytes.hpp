// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "trireme/config/load.hpp"
#include "trireme/model/model.hpp"
#include "trireme/planner/replay.hpp"
#include "trireme/schedule/op.hpp"

/// Memory and traffic of a step of any number of microbatches.
namespace trireme::planner {

/// Memory and traffic of one rank in a step.
struct RankBytes {
  Memory memory;
  Traffic traffic;
  std::int64_t ops = 0;     ///< in the schedule of all microbatches
  schedule::Schedule step;  ///< of at most four microbatches
};

/// The values for the schedule of all microbatches. At most four are built: every further one has the memory and
/// traffic of the fourth. Without a pipeline. verified: see schedule::build_step(). `config`: complete, `sync.policy`
/// resolved.
[[nodiscard]] RankBytes bytes_of_rank(const config::RunConfig& config, const config::Resolved& mesh,
                                      const model::Model& model, bool verified = true);

/// b + times * (b - a): the traffic of b, and `times` more of its difference to a.
[[nodiscard]] Traffic extrapolated(const Traffic& a, Traffic b, std::int64_t times);

}  // namespace trireme::planner
