// SPDX-License-Identifier: Apache-2.0
#include "planner/time/built.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "trireme/base/error.hpp"
#include "trireme/planner/pipeline.hpp"
#include "trireme/schedule/passes/build.hpp"

namespace trireme::planner {
namespace {

/// Every op waits for the one before it in the list.
void on_one_thread(std::vector<schedule::Need>& needs, int ops) {
  for (int op = 0; op < ops; ++op) needs.push_back({.from = op, .to = (op + 1) % ops, .distance = op + 1 == ops});
}

/// Needs of a candidate: those of its schedule, and more if its rank has one thread.
std::shared_ptr<const PlanCache::Needs> needs_of(const config::RunConfig& config, const config::Resolved& mesh,
                                                 const Machine& machine, std::shared_ptr<const PlanCache::Needs> needs,
                                                 std::size_t ops) {
  // A CPU rank without others has no communication to wait for: its lanes have no threads (train/engine/job.cpp).
  const bool threads = config.comm.lane_threads.value_or(machine.lane_threads > 0 && mesh.ranks() > 1);
  if (config.device.type == config::DeviceType::cuda || threads) return needs;
  PlanCache::Needs all = *needs;
  on_one_thread(all, static_cast<int>(ops));
  return std::make_shared<const PlanCache::Needs>(std::move(all));
}

Built built(const config::RunConfig& config, const config::Resolved& mesh, const Machine& machine,
            PlanCache::ModelPointer model, PlanCache::SchedulePointer schedule, PlanCache& cache) {
  auto needs = needs_of(config, mesh, machine, cache.needs(schedule, model), schedule->ops.size());
  auto layout = cache.layout(model, mesh.shards());
  return {.model = std::move(model),
          .schedule = std::move(schedule),
          .needs = std::move(needs),
          .layout = std::move(layout),
          .replay_options = replay_options_of(config, mesh)};
}

}  // namespace

std::vector<Built> build_ranks(const config::RunConfig& config, const config::Resolved& mesh, const Machine& machine,
                               int microbatches, bool one_of_many, PlanCache* cache, bool updates_beside) {
  PlanCache own;
  PlanCache& kept = cache == nullptr ? own : *cache;
  const PlanCache::ModelPointer whole = kept.model(config, mesh);
  schedule::Policy policy = schedule::policy_of(config, mesh);
  policy.updates_beside = policy.updates_beside && updates_beside;
  std::vector<Built> out;
  if (mesh.pipeline == 1) {
    auto step = one_of_many
                    ? kept.step(whole, microbatches, policy)
                    : std::make_shared<const schedule::Schedule>(schedule::build_step(*whole, microbatches, policy));
    out.push_back(built(config, mesh, machine, whole, std::move(step), kept));
    return out;
  }
  const schedule::Pipeline pipeline = pipeline_of(config, microbatches);
  if (const std::vector<std::string> wrong = schedule::mistakes(pipeline); !wrong.empty())
    throw ConfigError(fmt::format("{}", fmt::join(wrong, "\n")));
  const PlanCache::PartsPointer parts = kept.parts(config, whole, pipeline);
  const auto steps = one_of_many ? kept.steps(parts, pipeline, policy)
                                 : std::make_shared<const std::vector<schedule::Schedule>>(
                                       schedule::build_pipeline(parts->ranks, pipeline, parts->costs, policy));
  for (std::size_t rank = 0; rank < steps->size(); ++rank)
    out.push_back(built(config, mesh, machine, {parts, &parts->ranks[rank].model}, {steps, &(*steps)[rank]}, kept));
  return out;
}

Costs::Of costs_of(const Built& built, const config::RunConfig& config, const config::Resolved& mesh) {
  return {.model = *built.model,
          .layout = *built.layout,
          .replay_options = built.replay_options,
          .mesh = mesh,
          .seq_len = config.data.seq_len,
          .graphs = config.device.cuda_graphs};
}

}  // namespace trireme::planner
