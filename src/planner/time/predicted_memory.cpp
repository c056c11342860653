// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <numeric>
#include <utility>

#include "planner/time/built.hpp"
#include "planner/time/few_layers.hpp"
#include "trireme/planner/time/predict.hpp"
#include "trireme/schedule/passes/build.hpp"

namespace trireme::planner {
namespace {

constexpr std::int64_t most_layers = 6;
constexpr int replayed_microbatches = 2;  ///< later microbatches have the memory of the second

/// Memory of a full pipeline, which later microbatches do not exceed.
Memory most_of_a_pipeline(const config::RunConfig& config, const config::Resolved& mesh, bool verified,
                          PlanCache& cache) {
  using config::PipelineKind;
  const PipelineKind kind = config.pipeline.schedule;
  const int rounds_to_fill = kind == PipelineKind::zbv || kind == PipelineKind::dualpipev ? 3 : 2;
  // gpipe holds them all.
  const int microbatches =
      kind == PipelineKind::gpipe ? mesh.accumulation : few_microbatches(mesh, rounds_to_fill).more;
  const Machine any;  // bytes do not depend on it
  Memory most;
  std::vector<Memory::InHost> in_host;
  for (const Built& rank : build_ranks(config, mesh, any, microbatches, !verified, &cache)) {
    Memory of_rank = replay_memory(*rank.schedule, *rank.model, *rank.layout, rank.replay_options);
    in_host.push_back(of_rank.in_host());
    if (of_rank.total() > most.total()) most = std::move(of_rank);
  }
  most.by_pipeline_rank = std::move(in_host);
  return most;
}

Memory replayed(config::RunConfig config, const config::Resolved& mesh, std::int64_t layers, bool verified,
                PlanCache& cache) {
  config.model.layers = layers;
  if (mesh.pipeline > 1) return most_of_a_pipeline(config, mesh, verified, cache);
  const PlanCache::ModelPointer model = cache.model(config, mesh);
  const int microbatches = std::min(mesh.accumulation, replayed_microbatches);
  const schedule::Policy policy = schedule::policy_of(config, mesh);
  const auto replay = [&](const schedule::Schedule& step) {
    return replay_memory(step, *model, *cache.layout(model, mesh.shards()), replay_options_of(config, mesh));
  };
  return verified ? replay(schedule::build_step(*model, microbatches, policy))
                  : replay(*cache.step(model, microbatches, policy));
}

}  // namespace

std::optional<FewLayers> few_layers(const config::RunConfig& config) {
  const bool windows = config.optimizer.name == config::OptimizerName::muon;  // of bytes
  if (config.memory.offload_fraction != 1 || config.sync.prefetch_bytes || config.model.dense_layers > 0 || windows)
    return std::nullopt;
  const std::int64_t layers = config.model.layers;
  std::int64_t unit = 1;  // period of the layers: recompute, windows, RoPE
  for (const std::int64_t period :
       {config.memory.recompute_every, static_cast<std::int64_t>(config.model.layer_types.size()),
        config.model.no_rope_interval}) {
    if (period > layers) return std::nullopt;
    if (period > 0) unit = std::lcm(unit, period);
    if (unit > layers) return std::nullopt;
  }
  const std::int64_t few = most_layers + unit;
  if (layers <= few) return std::nullopt;
  const std::int64_t rest = (layers - few) % unit;  // so that whole units are left
  return FewLayers{.a = few + rest - unit, .b = few + rest, .times = (layers - few - rest) / unit};
}

Memory predict_memory(const config::RunConfig& config, const config::Resolved& mesh, bool few, PlanCache* cache) {
  PlanCache own;
  PlanCache& kept = cache == nullptr ? own : *cache;
  const auto line = few && mesh.pipeline == 1 ? few_layers(config) : std::nullopt;
  if (!line) return replayed(config, mesh, config.model.layers, !few, kept);
  const Memory a = replayed(config, mesh, line->a, false, kept);
  Memory out = replayed(config, mesh, line->b, false, kept);
  const auto extrapolate = [&](Bytes& b, Bytes from) { b.value += line->times * (b.value - from.value); };
  for (Bytes Memory::*category :
       {&Memory::parameters_sharded, &Memory::parameters_unsharded, &Memory::parameters_resharded,
        &Memory::gradients_sharded, &Memory::gradients_unsharded, &Memory::optimizer, &Memory::activations})
    extrapolate(out.*category, a.*category);
  for (Bytes AtOnce::*sum : {&AtOnce::most, &AtOnce::with_most_activations, &AtOnce::with_most_gradients})
    extrapolate(out.at_once.*sum, a.at_once.*sum);
  for (Bytes Memory::Host::*category : {&Memory::Host::parameters_sharded, &Memory::Host::gradients_sharded,
                                        &Memory::Host::optimizer, &Memory::Host::activations, &Memory::Host::other})
    extrapolate(out.host.*category, a.host.*category);
  return out;
}

}  // namespace trireme::planner
