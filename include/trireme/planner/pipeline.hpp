// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "trireme/model/chunks.hpp"
#include "trireme/planner/replay.hpp"
#include "trireme/schedule/pipeline/build.hpp"

/// A run with a pipeline: state, ops and traffic of every pipeline rank. The ranks of the other axes repeat them.
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

/// The pipeline of a run file, with `microbatches` in a step.
[[nodiscard]] schedule::Pipeline pipeline_of(const config::RunConfig& config, int microbatches);

/// By `pipeline.layers`, else by FLOPs. Throws ConfigError if they do not fit.
[[nodiscard]] std::vector<model::Chunk> chunks_of(const config::RunConfig& config, const model::Model& whole,
                                                  const schedule::Pipeline& pipeline);

/// Builds and verifies the lists of all pipeline ranks, and replays each. Throws ConfigError for invalid settings.
[[nodiscard]] PipelinePlan plan_pipeline(const config::RunConfig& config, const config::Resolved& mesh);

/// The result of plan_pipeline(), but with the lists of only a few microbatches: the steady state of a full pipeline is
/// periodic. Memory and traffic are those of all.
[[nodiscard]] PipelinePlan bytes_of_pipeline(const config::RunConfig& config, const config::Resolved& mesh);

/// The same without memory and traffic, for the pipeline ranks that are elsewhere where `at` is.
[[nodiscard]] PipelinePlan build_pipeline_plan(const config::RunConfig& config, const config::Resolved& mesh,
                                               const mesh::Coordinates& at = {});

/// Chunks, layers, parameters, share of FLOPs and memory of every pipeline rank.
[[nodiscard]] std::string ranks_table(const PipelinePlan& plan);

/// The bubble by formula, counted in the action grid, and with the FLOPs of the chunks.
[[nodiscard]] std::string bubble_text(const PipelinePlan& plan);

/// Grid of the actions of all ranks, with F = I = W = 1: a line per time step, a column per rank, `.` when idle; then
/// the bubble.
[[nodiscard]] std::string action_grid(const PipelinePlan& plan);

}  // namespace trireme::planner
