// SPDX-License-Identifier: Apache-2.0
#include "planner/time/built.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "planner/time/few_layers.hpp"
#include "trireme/base/error.hpp"
#include "trireme/planner/pipeline.hpp"
#include "trireme/schedule/passes/build.hpp"

namespace trireme::planner {
namespace {

constexpr int most_microbatches = 4;  ///< simulated without a pipeline

/// Every op waits for the one before it in the list.
void on_one_thread(std::vector<schedule::Need>& needs, int ops) {
  for (int op = 0; op < ops; ++op) needs.push_back({.from = op, .to = (op + 1) % ops, .distance = op + 1 == ops});
}

Built built(const config::RunConfig& config, const config::Resolved& mesh, const Machine& machine,
            std::shared_ptr<const model::Model> model, schedule::Schedule schedule) {
  auto needs = schedule::needs(schedule, *model);
  shard::Layout layout(*model, mesh.shards());
  Built out{.model = std::move(model),
            .schedule = std::move(schedule),
            .needs = std::move(needs),
            .layout = std::move(layout),
            .replay_options = replay_options_of(config, mesh)};
  // A CPU rank by itself has nobody to wait for: its lanes have no threads (train/engine/job.cpp).
  const bool threads = config.comm.lane_threads.value_or(machine.lane_threads > 0 && mesh.ranks() > 1);
  if (!out.replay_options.on_gpu && !threads) on_one_thread(out.needs, static_cast<int>(out.schedule.ops.size()));
  return out;
}

}  // namespace

std::shared_ptr<const model::Model> ModelCache::of(const config::RunConfig& config, const config::Resolved& mesh) {
  constexpr std::size_t most = 64;
  const std::int64_t layers = config.model.layers;
  const model::TensorPart part = tensor_part(config, mesh, 0);
  for (const Entry& entry : entries_)
    if (entry.layers == layers && entry.part == part) return entry.model;
  if (entries_.size() == most) entries_.erase(entries_.begin());
  entries_.push_back({layers, part, std::make_shared<const model::Model>(model::build(config.model, part))});
  return entries_.back().model;
}

std::vector<Built> build_ranks(const config::RunConfig& config, const config::Resolved& mesh, const Machine& machine,
                               int microbatches, bool one_of_many, ModelCache* models, bool updates_beside) {
  ModelCache none;
  const std::shared_ptr<const model::Model> whole = (models == nullptr ? none : *models).of(config, mesh);
  schedule::Policy policy = schedule::policy_of(config, mesh);
  policy.updates_beside = policy.updates_beside && updates_beside;
  std::vector<Built> out;
  if (mesh.pipeline == 1) {
    out.push_back(built(config, mesh, machine, whole, step_of(*whole, microbatches, policy, one_of_many)));
    return out;
  }
  const schedule::Pipeline pipeline = pipeline_of(config, microbatches);
  if (const std::vector<std::string> wrong = schedule::mistakes(pipeline); !wrong.empty())
    throw ConfigError(fmt::format("{}", fmt::join(wrong, "\n")));
  const auto chunks = chunks_of(config, *whole, pipeline);
  auto parts = schedule::pipeline_parts(*whole, chunks, pipeline);
  const schedule::ActionCosts costs = schedule::flop_costs(*whole, chunks, config.data.seq_len);
  auto lists = one_of_many ? schedule::build_pipeline_unverified(parts, pipeline, costs, policy)
                           : schedule::build_pipeline(parts, pipeline, costs, policy);
  for (std::size_t rank = 0; rank < parts.size(); ++rank)
    out.push_back(built(config, mesh, machine, std::make_shared<const model::Model>(std::move(parts[rank].model)),
                        std::move(lists[rank])));
  return out;
}

Costs::Of costs_of(const Built& built, const config::RunConfig& config, const config::Resolved& mesh) {
  return {.model = *built.model,
          .layout = built.layout,
          .replay_options = built.replay_options,
          .mesh = mesh,
          .seq_len = config.data.seq_len,
          .graphs = config.device.cuda_graphs};
}

FewMicrobatches few_microbatches(const config::Resolved& mesh, int rounds) {
  const int all = mesh.accumulation, unit = mesh.pipeline;
  const int more = unit == 1 ? most_microbatches : rounds * unit + all % unit;
  if (all <= more) return {.fewer = all, .more = all};
  return {.fewer = more - unit, .more = more, .times = static_cast<double>(all - more) / unit};
}

}  // namespace trireme::planner
