// SPDX-License-Identifier: Apache-2.0
#include "trireme/planner/pipeline.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "planner/few_microbatches.hpp"
#include "trireme/base/error.hpp"
#include "trireme/base/text_table.hpp"
#include "trireme/model/activations.hpp"
#include "trireme/planner/rank_bytes.hpp"

namespace trireme::planner {
namespace {

std::string share_text(double part) { return fmt::format("{:.1f}%", 100 * part); }

std::int64_t layers_in(const model::PipelinePart& part, const model::HeldChunk& chunk) {
  std::int64_t count = 0;
  for (Block b = chunk.first; b < chunk.last; ++b.value) count += model::recomputes(part.model[b]) ? 1 : 0;
  return count;
}

schedule::TableTimes unit_times(const schedule::Pipeline& p) {
  return schedule::run_table(p, schedule::action_table(p),
                             schedule::ActionCosts(static_cast<std::size_t>(p.all_chunks())));
}

/// By time step: each rank's action.
std::vector<std::vector<std::string>> cells(const schedule::TableTimes& times) {
  std::vector<std::vector<std::string>> rows(static_cast<std::size_t>(times.end),
                                             std::vector<std::string>(times.ranks.size(), "."));
  for (std::size_t rank = 0; rank < times.ranks.size(); ++rank)
    for (const schedule::ActionTime& ran : times.ranks[rank])
      for (std::int64_t at = ran.begin; at < ran.end; ++at)
        rows[static_cast<std::size_t>(at)][rank] = at == ran.begin ? to_text(ran.action) : "|";
  return rows;
}

}  // namespace

int PipelinePlan::worst_rank() const {
  const auto worst = std::max_element(memory.begin(), memory.end(),
                                      [](const Memory& a, const Memory& b) { return a.total() < b.total(); });
  return static_cast<int>(worst - memory.begin());
}

schedule::Pipeline pipeline_of(const config::RunConfig& config, int microbatches) {
  const auto kind = config.pipeline.schedule;
  return {.kind = kind,
          .ranks = static_cast<int>(config.mesh.pipeline),
          .chunks = config.pipeline.chunks ? static_cast<int>(*config.pipeline.chunks) : schedule::default_chunks(kind),
          .microbatches = microbatches};
}

std::vector<model::Chunk> chunks_of(const config::RunConfig& config, const model::Model& whole,
                                    const schedule::Pipeline& pipeline) {
  const std::vector<std::int64_t>& layers = config.pipeline.layers;
  if (layers.empty()) return model::cut_by_flops(whole, pipeline.all_chunks(), config.data.seq_len);
  if (static_cast<int>(layers.size()) != pipeline.all_chunks())
    throw ConfigError(fmt::format("pipeline.layers: {} entries for mesh.pipeline {} x pipeline.chunks {} = {} chunks",
                                  layers.size(), pipeline.ranks, pipeline.chunks, pipeline.all_chunks()));
  return model::cut_by_layers(whole, layers);
}

PipelinePlan build_pipeline_plan(const config::RunConfig& config, const config::Resolved& mesh,
                                 const mesh::Coordinates& at) {
  PipelinePlan plan{
      .pipeline = pipeline_of(config, mesh.accumulation),
      .whole = model::build(config.model, tensor_part(config, mesh, at.tensor, at.context, mesh.expert_rank(at)))};
  if (const std::vector<std::string> wrong = schedule::mistakes(plan.pipeline); !wrong.empty())
    throw ConfigError(fmt::format("{}", fmt::join(wrong, "\n")));
  plan.chunks = chunks_of(config, plan.whole, plan.pipeline);
  plan.costs = schedule::flop_costs(plan.whole, plan.chunks, config.data.seq_len);
  plan.parts = schedule::pipeline_parts(plan.whole, plan.chunks, plan.pipeline);
  plan.steps = schedule::build_pipeline(plan.parts, plan.pipeline, plan.costs, schedule::policy_of(config, mesh));
  return plan;
}

PipelinePlan plan_pipeline(const config::RunConfig& config, const config::Resolved& mesh) {
  PipelinePlan plan = build_pipeline_plan(config, mesh);
  const ReplayOptions options = replay_options_of(config, mesh);
  for (std::size_t rank = 0; rank < plan.parts.size(); ++rank) {
    const shard::Layout layout(plan.parts[rank].model, mesh.shards());
    plan.memory.push_back(replay_memory(plan.steps[rank], plan.parts[rank].model, layout, options));
    plan.traffic.push_back(replay_traffic(plan.steps[rank], plan.parts[rank].model, layout, options));
  }
  std::vector<Memory::InHost> in_host;
  for (const Memory& memory : plan.memory) in_host.push_back(memory.in_host());
  for (Memory& memory : plan.memory) memory.by_pipeline_rank = in_host;
  return plan;
}

FewMicrobatches few_microbatches(const config::Resolved& mesh, int rounds) {
  const int all = mesh.accumulation, unit = mesh.pipeline;
  const int more = unit == 1 ? most_microbatches : rounds * unit + all % unit;
  if (all <= more) return {.fewer = all, .more = all};
  return {.fewer = more - unit, .more = more, .times = static_cast<double>(all - more) / unit};
}

PipelinePlan bytes_of_pipeline(const config::RunConfig& config, const config::Resolved& mesh) {
  constexpr int rounds = 4;  // to fill and to drain, twice
  const FewMicrobatches few = few_microbatches(mesh, rounds);
  if (few.times == 0 || config.pipeline.schedule == config::PipelineKind::gpipe)  // which holds all microbatches
    return plan_pipeline(config, mesh);
  const auto of = [&](int microbatches) {
    config::Resolved less = mesh;
    less.accumulation = microbatches;
    return plan_pipeline(config, less);
  };
  const PipelinePlan fewer = of(few.fewer);
  PipelinePlan plan = of(few.more);
  for (std::size_t rank = 0; rank < plan.traffic.size(); ++rank)
    plan.traffic[rank] = extrapolated(fewer.traffic[rank], std::move(plan.traffic[rank]), std::llround(few.times));
  plan.pipeline.microbatches = mesh.accumulation;
  return plan;
}

std::string ranks_table(const PipelinePlan& plan) {
  double all_flops = 0;
  for (const schedule::ChunkCost& cost : plan.costs)
    all_flops += static_cast<double>(cost.forward + cost.input + cost.weight);
  TextTable table({"pipeline rank", "chunks", "layers", "parameters", "FLOPs", "activations", "memory", "sent"});
  for (std::size_t rank = 0; rank < plan.parts.size(); ++rank) {
    const model::PipelinePart& part = plan.parts[rank];
    std::vector<std::string> chunks, layers;
    double flops = 0;
    for (const model::HeldChunk& chunk : part.chunks) {
      chunks.push_back(std::to_string(chunk.chunk));
      layers.push_back(std::to_string(layers_in(part, chunk)));
      const schedule::ChunkCost& cost = plan.costs[static_cast<std::size_t>(chunk.chunk)];
      flops += static_cast<double>(cost.forward + cost.input + cost.weight);
    }
    Bytes sent;
    if (const auto found = plan.traffic[rank].find("pipeline"); found != plan.traffic[rank].end())
      for (const auto& [operation, moved] : found->second) sent += moved.bytes;
    table.add({std::to_string(rank), fmt::format("{}", fmt::join(chunks, " ")),
               fmt::format("{}", fmt::join(layers, " + ")), to_short_text(static_cast<double>(part.model.elements())),
               share_text(flops / all_flops), to_text(plan.memory[rank].activations),
               to_text(plan.memory[rank].total()), to_text(sent)});
  }
  return table.str();
}

std::string bubble_text(const PipelinePlan& plan) {
  const schedule::Pipeline& p = plan.pipeline;
  const schedule::ActionTable actions = schedule::action_table(p);
  const auto formula = schedule::unit_bubble(p);
  const int idle = (p.splits_backward() ? 1 : 3) * (p.ranks - 1);
  const std::string by_formula =
      formula ? fmt::format("{} = {} / ({} + 3 x {} x {})", share_text(*formula), idle, idle, p.chunks, p.microbatches)
              : fmt::format("none for fewer than {} microbatches",
                            p.kind == config::PipelineKind::zbv ? 2 * p.ranks - 1 : p.ranks);
  TextTable table({"bubble", ""});
  table.add({"by formula, F = I = W", by_formula});
  table.add({"counted in the grid", share_text(unit_times(p).bubble())});
  table.add({"with the FLOPs of the chunks", share_text(schedule::run_table(p, actions, plan.costs).bubble())});
  return table.str();
}

std::string action_grid(const PipelinePlan& plan) {
  std::vector<std::string> head{"time"};
  for (int rank = 0; rank < plan.pipeline.ranks; ++rank) head.push_back(fmt::format("p{}", rank));
  TextTable table(head);
  const auto rows = cells(unit_times(plan.pipeline));
  for (std::size_t at = 0; at < rows.size(); ++at) {
    std::vector<std::string> row{std::to_string(at)};
    row.insert(row.end(), rows[at].begin(), rows[at].end());
    table.add(row);
  }
  return table.str() + "\n" + bubble_text(plan);
}

}  // namespace trireme::planner
