// SPDX-License-Identifier: Apache-2.0
#include "planner/time/plan_cache.hpp"

#include "trireme/planner/pipeline.hpp"
#include "trireme/planner/replay.hpp"

namespace trireme::planner {

PlanCache::ModelPointer PlanCache::model(const config::RunConfig& config, const config::Resolved& mesh) {
  const ModelKey key{.layers = config.model.layers, .part = tensor_part(config, mesh, 0)};
  return models_.of(key, [&] { return model::build(config.model, key.part); });
}

std::shared_ptr<const shard::Layout> PlanCache::layout(const ModelPointer& model, int shards) {
  return layouts_.of({model, shards}, [&] { return shard::Layout(*model, shards); });
}

PlanCache::SchedulePointer PlanCache::step(const ModelPointer& model, int microbatches, schedule::Policy policy) {
  policy.replicas = std::min(policy.replicas, 2);  // passes only distinguish one from several
  return steps_.of({.model = model, .microbatches = microbatches, .policy = fields_of(policy)},
                   [&] { return schedule::build_step_unverified(*model, microbatches, policy); });
}

PlanCache::PartsPointer PlanCache::parts(const config::RunConfig& config, const ModelPointer& whole,
                                         const schedule::Pipeline& pipeline) {
  return parts_.of({.whole = whole,
                    .kind = pipeline.kind,
                    .ranks = pipeline.ranks,
                    .chunks = pipeline.chunks,
                    .layers = config.pipeline.layers},
                   [&] {
                     const auto chunks = chunks_of(config, *whole, pipeline);
                     return Parts{.ranks = schedule::pipeline_parts(*whole, chunks, pipeline),
                                  .costs = schedule::flop_costs(*whole, chunks, config.data.seq_len)};
                   });
}

std::shared_ptr<const std::vector<schedule::Schedule>> PlanCache::steps(const PartsPointer& parts,
                                                                        const schedule::Pipeline& pipeline,
                                                                        schedule::Policy policy) {
  policy.replicas = std::min(policy.replicas, 2);
  return pipeline_steps_.of({.parts = parts, .pipeline = pipeline, .policy = fields_of(policy)}, [&] {
    return schedule::build_pipeline_unverified(parts->ranks, pipeline, parts->costs, policy);
  });
}

double PlanCache::flops_per_token(const ModelPointer& model, std::int64_t seq_len) {
  return *flops_.of({model, seq_len}, [&] { return model::flops_per_token(*model, seq_len); });
}

std::shared_ptr<const PlanCache::Needs> PlanCache::needs(const SchedulePointer& schedule, const ModelPointer& model) {
  return needs_.of(schedule, [&] { return schedule::needs(*schedule, *model); });
}

}  // namespace trireme::planner
