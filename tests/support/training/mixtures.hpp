// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "support/jobs.hpp"
#include "trireme/data/batch_reader.hpp"
#include "trireme/device/memory.hpp"
#include "trireme/optim/learning_rate.hpp"

/// Small mixtures of experts, and their training, for tests that compare them on CPUs and GPUs.
namespace trireme::test {

/// A Qwen3-MoE whose sizes divide by little.
inline config::RunConfig odd_mixture(const TokenFiles& files, int steps) {
  config::RunConfig config = odd_run(files, steps);
  config.model.architecture = "qwen3_moe";
  config.model.intermediate_size = 30;
  config.model.expert_size = 22;
  config.model.experts = 6;
  config.model.experts_per_token = 2;
  config.optimizer.eps = 1e-6;  // an expert with few tokens has small gradients, which make no step of rounding
  config.optimizer.lr = 5e-4;
  return config;
}

/// A GLM-4-MoE: groups of experts, a shared expert, a dense first layer, correction biases that move.
inline void make_glm(config::RunConfig& config) {
  config.model.architecture = "glm4_moe";
  config.model.experts_per_token = 3;
  config.model.router_groups = 3;
  config.model.router_groups_kept = 2;
  config.model.router_scale = 1.8;
  config.model.shared_size = 44;
  config.model.dense_layers = 1;
  config.loss = {.balance_loss = 0.1, .router_z_loss = 0.01, .balance_bias_rate = 0.01};
}

/// All that a router's losses weigh, and targets that are not counted.
inline void add_router_losses(config::RunConfig& config) {
  config.loss = {.z_loss = 1e-3, .balance_loss = 0.1, .router_z_loss = 0.01};
  config.data.ignore_targets = {TokenFiles::silent_token};
}

/// Trains all steps of `config` from the values of `job`, the last one separately: no lane runs ahead into it, so that
/// the memory peaks are those of that step.
inline std::vector<executor::StepResult> last_step_alone(train::Job& job, const config::RunConfig& config) {
  data::BatchReader reader(config.data, data::Split::train, config.model.vocab_size, config.run.seed, job.batch_shape(),
                           {});
  std::vector<executor::StepResult> results;
  for (int step = 0; step < config.train.steps; ++step) {
    const bool last = step + 1 == config.train.steps;
    if (last) device::reset_peaks();
    results.push_back(job.step(reader.next(),
                               optim::learning_rate(config.lr, config.optimizer.lr, step, config.train.steps),
                               last || step + 2 == config.train.steps));
  }
  return results;
}

}  // namespace trireme::test
