// SPDX-License-Identifier: Apache-2.0
#include "cli/plan_pipeline.hpp"

#include <fmt/format.h>

#include "trireme/base/error.hpp"
#include "trireme/config/names.hpp"
#include "trireme/planner/pipeline.hpp"
#include "trireme/planner/replay.hpp"
#include "trireme/planner/time/predict.hpp"
#include "trireme/schedule/text.hpp"
#include "trireme/shard/layout.hpp"

namespace trireme::cli {
namespace {

void print_summary(const planner::PipelinePlan& plan, const config::RunConfig& config, const config::Resolved& mesh,
                   int ranks) {
  fmt::print(
      "{} of {} parameters on {} rank{} (pipeline {} x replicate {} x shard {}{} x tensor {}), {} microbatches a "
      "step, {} gradients, {} with {} of layers on each pipeline rank\n\n{}\n",
      plan.whole.architecture, to_short_text(static_cast<double>(plan.whole.elements())), ranks, ranks == 1 ? "" : "s",
      plan.pipeline.ranks, mesh.replicate, mesh.shard,
      mesh.context > 1 ? fmt::format(" x context {}", mesh.context) : "", mesh.tensor, mesh.accumulation,
      config::to_text(config.sync.policy), config::to_text(plan.pipeline.kind),
      plan.pipeline.chunks == 1 ? "1 chunk" : fmt::format("{} chunks", plan.pipeline.chunks),
      planner::ranks_table(plan));
}

}  // namespace

void plan_pipeline(const config::RunConfig& config, int ranks, const std::string& show, std::optional<int> rank,
                   const planner::Machine& machine) {
  if (show == "passes")
    throw ConfigError(fmt::format("plan: --show {} is not available with mesh.pipeline > 1 yet", show));
  const config::Resolved mesh = config::resolve(config, ranks);
  const planner::PipelinePlan plan = show == "schedule" || show == "pipeline"
                                         ? planner::plan_pipeline(config, mesh)
                                         : planner::bytes_of_pipeline(config, mesh);
  const int shown = rank.value_or(plan.worst_rank());
  if (shown < 0 || shown >= plan.pipeline.ranks)
    throw ConfigError(
        fmt::format("plan: --pipeline-rank {}: pipeline ranks are 0 to {}", shown, plan.pipeline.ranks - 1));
  const auto at = static_cast<std::size_t>(shown);
  if (show == "schedule") {
    fmt::print("{}", schedule::print(plan.steps[at], plan.parts[at].model));
    return;
  }
  if (show == "summary" || show == "pipeline") print_summary(plan, config, mesh, ranks);
  if (show == "pipeline") {
    fmt::print("{}", planner::action_grid(plan));
    return;
  }
  fmt::print("pipeline rank {}{}\n", shown, rank ? "" : ", which holds the most");
  if (show != "traffic")
    fmt::print("{}{}", planner::to_text(plan.memory[at]), planner::host_memory_text(plan.memory[at], mesh, machine));
  if (show != "traffic" && mesh.expert > 1) {
    const model::Model& held = plan.parts[at].model;
    fmt::print("{}", planner::rows_text(plan.steps[at], held, shard::Layout(held, mesh.shards()),
                                        planner::replay_options_of(config, mesh)));
  }
  if (show == "summary") fmt::print("\n");
  if (show != "memory") fmt::print("{}", planner::to_text(plan.traffic[at]));
  if (show == "summary") fmt::print("\n{}", planner::bubble_text(plan));
}

}  // namespace trireme::cli
