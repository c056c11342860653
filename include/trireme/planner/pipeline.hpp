// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "trireme/model/chunks.hpp"
#include "trireme/planner/replay.hpp"
#include "trireme/schedule/pipeline/build.hpp"

/// A run with a pipeline: what every pipeline rank holds, does, and moves. The ranks of the other axes repeat it.
namespace trireme::planner {

struct PipelinePlan {
  schedule::Pipeline pipeline;
  model::Model whole;
  std::vector<model::Chunk> chunks;
  schedule::ActionCosts costs;
  // By pipeline rank.
  std::vector<model::PipelinePart> parts;
  std::vector<schedule::Schedule> steps;
  std::vector<Memory> memory;
  std::vector<Traffic> traffic;

  /// The rank with the highest total memory.
  [[nodiscard]] int worst_rank() const;
};

/// The pipeline that a run file asks for, with `microbatches` of a step.
[[nodiscard]] schedule::Pipeline pipeline_of(const config::RunConfig& config, int microbatches);

/// By `pipeline.layers`, else by FLOPs. Throws ConfigError where they do not fit.
[[nodiscard]] std::vector<model::Chunk> chunks_of(const config::RunConfig& config, const model::Model& whole,
                                                  const schedule::Pipeline& pipeline);

/// Builds and verifies the lists of all pipeline ranks, and replays each. Throws ConfigError for what does not fit.
[[nodiscard]] PipelinePlan plan_pipeline(const config::RunConfig& config, const config::Resolved& mesh);

/// What plan_pipeline() gives, but with the lists of a few microbatches where there are many: a pipeline that is full
/// repeats itself. Memory and traffic are those of all.
[[nodiscard]] PipelinePlan bytes_of_pipeline(const config::RunConfig& config, const config::Resolved& mesh);

/// The same without memory and traffic, for the pipeline ranks that are elsewhere where `at` is.
[[nodiscard]] PipelinePlan build_pipeline_plan(const config::RunConfig& config, const config::Resolved& mesh,
                                               const mesh::Coordinates& at = {});

/// Chunks, layers, parameters, share of FLOPs and memory of every pipeline rank.
[[nodiscard]] std::string ranks_table(const PipelinePlan& plan);

/// The bubble by formula, counted in the action grid, and with the FLOPs of the chunks.
[[nodiscard]] std::string bubble_text(const PipelinePlan& plan);

/// What every rank does when, with F = I = W = 1: a line a time step, a column a rank, `.` where it is idle; then the
/// bubble.
[[nodiscard]] std::string action_grid(const PipelinePlan& plan);

}  // namespace trireme::planner
