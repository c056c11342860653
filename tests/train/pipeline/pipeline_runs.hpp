// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "support/parity.hpp"
#include "support/training/as_planned.hpp"
#include "trireme/device/allocator.hpp"
#include "trireme/device/memory.hpp"
#include "trireme/planner/pipeline.hpp"

/// Runs with a pipeline, compared with the plain program and with the plan of every rank.
namespace trireme::train::pipeline_runs {

/// Trained models: changes to `odd_run`, on the same batches of 48 rows.
enum class Problem { llama, tied, everything_else, gpt2, deep };

inline config::RunConfig problem_run(Problem problem, const test::TokenFiles& files) {
  const int steps = test::parity_steps();
  config::RunConfig config = problem == Problem::gpt2 ? test::gpt2_run(files, steps) : test::odd_run(files, steps);
  const bool eight = problem == Problem::deep || problem == Problem::llama;  // of six layers llama is ill-conditioned
  config.model.layers = eight ? 8 : 6;
  // With so many layers fp32 does not reach the norm's tolerance otherwise: suppresses steps by gradients that are only
  // rounding.
  config.optimizer.eps = 1e-6;
  config.optimizer.lr = eight ? 2e-4 : 5e-4;
  config.model.tie_embeddings = problem == Problem::tied || problem == Problem::gpt2 || problem == Problem::deep;
  if (problem == Problem::everything_else) {
    config.data.ignore_targets = {test::TokenFiles::silent_token, 20, 21, 22};
    config.data.document_end = 7;
    config.data.document_mask = true;
    config.loss.z_loss = 1e-2;
  }
  return config;
}

/// Traffic and memory of steps, on this rank.
struct Costs {
  std::vector<comm::TrafficTable> traffic;
  device::MemoryUse before;
};

/// Compares bytes on every link, and memory by category, on the device and on the host, except workspace. Slots share
/// their category with the transports' staging buffers, which the job counts.
inline void expect_as_planned(const config::RunConfig& config, Job& job, const Costs& costs) {
  const planner::PipelinePlan plan = planner::plan_pipeline(config, job.resolved());
  const auto rank = static_cast<std::size_t>(job.at().pipeline);
  EXPECT_EQ(job.schedule(), plan.steps[rank]);
  const planner::ReplayOptions options = test::plan_options(config, job);
  const planner::Traffic predicted = planner::replay_traffic(job.schedule(), job.model(), job.layout(), options);
  EXPECT_EQ(predicted.at("pipeline"), plan.traffic[rank].at("pipeline"));
  for (const comm::TrafficTable& counted : costs.traffic) test::expect_traffic(counted, predicted);
  const planner::Memory memory = planner::replay_memory(job.schedule(), job.model(), job.layout(), options);
  EXPECT_EQ(memory.activations, plan.memory[rank].activations);
  EXPECT_GT(memory.communication.value, 0);
  EXPECT_EQ(memory.communication, plan.memory[rank].communication);
  test::expect_memory(costs.before, memory, job);
}

/// Trains it, and holds its last two steps, between which lanes run ahead, to the plan. Collective over `world`.
inline test::Curve curve_as_planned(const config::RunConfig& config, const mpi::Communicator& world,
                                    const JobOptions& options) {
  Costs costs{.traffic = {}, .before = device::memory_use()};
  device::reset_peaks();
  return test::train_job(config, world, options,
                         [&](Job& job, int step) {
                           if (step + 2 < config.train.steps) return;
                           costs.traffic.push_back(job.step_traffic());
                           if (step + 1 < config.train.steps) return;
                           expect_as_planned(config, job, costs);
                         })
      .curve;
}

}  // namespace trireme::train::pipeline_runs
