// SPDX-License-Identifier: Apache-2.0
//
// Measures small training steps for a machine file.
#include <algorithm>

#include "cli/doctor/calibrate.hpp"
#include "trireme/planner/time/calibrate.hpp"
#include "trireme/train/engine/job.hpp"

namespace trireme::cli {
namespace {

config::RunConfig llama(std::int64_t layers, std::int64_t hidden, std::int64_t tokens) {
  config::RunConfig config;
  config.model.vocab_size = 4 * hidden;
  config.model.hidden_size = hidden;
  config.model.intermediate_size = 3 * hidden;
  config.model.layers = layers;
  config.model.heads = config.model.kv_heads = std::max<std::int64_t>(1, hidden / 64);
  config.model.head_dim = hidden / config.model.heads;
  config.data.seq_len = tokens;
  config.precision.compute = DType::fp32;
  config.memory.recompute = config::Recompute::none;
  config.batch = {.global = 1, .micro = 1};
  config.device.type = config::DeviceType::cpu;
  config.train.steps = 1;
  return config;
}

data::StepBatch some_tokens(const config::RunConfig& config) {
  data::MicrobatchTokens tokens;
  tokens.counted = config.data.seq_len;
  for (std::int64_t i = 0; i < tokens.counted; ++i) {
    tokens.inputs.push_back(static_cast<std::int32_t>(i * 7919 % config.model.vocab_size));
    tokens.targets.push_back(static_cast<std::int32_t>(i * 104729 % config.model.vocab_size));
  }
  data::StepBatch batch;
  batch.counted = tokens.counted;
  batch.microbatches.push_back(std::move(tokens));
  return batch;
}

/// Every rank trains for itself, all at the same time.
planner::TimedStep timed_step(const mpi::Communicator& world, const mpi::Communicator& alone,
                              const config::RunConfig& config) {
  train::Job job(config, alone, {.lane_threads = false});
  job.store().fill(store::initial_values(1));
  const data::StepBatch batch = some_tokens(config);
  constexpr double budget = 2.5;
  const double seconds = typical_seconds(budget, [&] { (void)job.step(batch, 1e-4, true); });
  return {config, mean_over_ranks(world, seconds)};
}

}  // namespace

void measure_steps(planner::Machine& machine, const mpi::Communicator& world) {
  const mpi::Communicator alone = world.split(world.rank(), 0);
  const planner::TimedStep shallow = timed_step(world, alone, llama(2, 64, 16));
  const planner::TimedStep deep = timed_step(world, alone, llama(10, 64, 16));
  const planner::TimedStep wide = timed_step(world, alone, llama(4, 256, 512));
  machine = planner::with_steps(std::move(machine), shallow, deep, wide);
}

}  // namespace trireme::cli
