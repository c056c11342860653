// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <vector>

#include "planner/few_microbatches.hpp"
#include "planner/time/plan_cache.hpp"
#include "trireme/planner/time/predict.hpp"

namespace trireme::planner {

/// State and ops of one pipeline rank in a step, ready to be costed for several machines.
struct Built {
  PlanCache::ModelPointer model;
  PlanCache::SchedulePointer schedule;
  std::shared_ptr<const PlanCache::Needs> needs;
  std::shared_ptr<const shard::Layout> layout;
  ReplayOptions replay_options;
};

/// One rank, or those of a pipeline, with `microbatches` of a step. one_of_many: not verified. Throws ConfigError if
/// a pipeline does not fit.
[[nodiscard]] std::vector<Built> build_ranks(const config::RunConfig& config, const config::Resolved& mesh,
                                             const Machine& machine, int microbatches, bool one_of_many,
                                             PlanCache* cache = nullptr, bool updates_beside = true);

[[nodiscard]] Costs::Of costs_of(const Built& built, const config::RunConfig& config, const config::Resolved& mesh);

}  // namespace trireme::planner
