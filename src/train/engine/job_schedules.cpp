// SPDX-License-Identifier: Apache-2.0
#include "train/engine/job_schedules.hpp"

#include <algorithm>
#include <utility>
#include <vector>

#include "trireme/base/fault.hpp"
#include "trireme/planner/pipeline.hpp"
#include "trireme/planner/replay.hpp"
#include "trireme/schedule/passes/build.hpp"
#include "trireme/schedule/pipeline/build.hpp"
#include "trireme/schedule/text.hpp"

namespace trireme::train {
namespace {

/// The first pipeline rank that holds each parameter block of the whole model.
std::vector<int> holders_of(const planner::PipelinePlan& plan) {
  std::vector<int> holders;
  for (const model::ParameterBlock& block : plan.whole.parameter_blocks) {
    const auto holds = [&](const model::PipelinePart& part) {
      return std::ranges::find(part.model.parameter_blocks, block.name, &model::ParameterBlock::name) !=
             part.model.parameter_blocks.end();
    };
    holders.push_back(static_cast<int>(std::ranges::find_if(plan.parts, holds) - plan.parts.begin()));
  }
  return holders;
}

JobSchedules of_pipeline(const config::RunConfig& config, const config::Resolved& mesh, const mesh::Coordinates& at) {
  planner::PipelinePlan plan = planner::build_pipeline_plan(config, mesh, at);
  const std::vector<schedule::Schedule> forwards =
      schedule::build_pipeline_forward(plan.parts, plan.pipeline, schedule::policy_of(config, mesh));
  if (fault::point("start.list")) std::swap(plan.steps.front().ops.front(), plan.steps.front().ops.back());
  std::string text;
  for (std::size_t rank = 0; rank < plan.steps.size(); ++rank)
    text += schedule::print(plan.steps[rank], plan.parts[rank].model) +
            schedule::print(forwards[rank], plan.parts[rank].model);
  const auto mine = static_cast<std::size_t>(at.pipeline);
  std::vector<int> holders = holders_of(plan);
  return {.held = std::move(plan.parts[mine].model),
          .whole = std::move(plan.whole),
          .holders = std::move(holders),
          .step = std::move(plan.steps[mine]),
          .forward = forwards[mine],
          .text = std::move(text)};
}

}  // namespace

JobSchedules job_schedules(const config::RunConfig& run, const config::Resolved& mesh, const mesh::Coordinates& at,
                           bool on_gpu) {
  const config::RunConfig config = planner::computing_on(run, on_gpu);
  if (mesh.pipeline > 1) return of_pipeline(config, mesh, at);
  JobSchedules out{.held = model::build(
                       config.model, planner::tensor_part(config, mesh, at.tensor, at.context, mesh.expert_rank(at)))};
  const schedule::Policy policy = schedule::policy_of(config, mesh);
  out.step = schedule::build_step(out.held, mesh.accumulation, policy);
  out.forward = schedule::build_forward(out.held, policy);
  out.text = schedule::print(out.step, out.held);
  return out;
}

}  // namespace trireme::train
