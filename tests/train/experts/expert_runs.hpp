// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "support/parity.hpp"
#include "trireme/device/allocator.hpp"
#include "trireme/device/memory.hpp"
#include "trireme/optim/learning_rate.hpp"
#include "trireme/planner/replay.hpp"

/// What tests of divided experts train, held to the plain program and to the plan with the rows that were recorded.
namespace trireme::train::experts_test {

constexpr int steps = 8;

enum class Problem { mixtral, qwen, losses, one_expert, glm, qwen2 };

inline config::RunConfig problem_run(Problem problem, const test::TokenFiles& files) {
  config::RunConfig config = test::odd_run(files, steps);
  config.model.architecture = "qwen3_moe";
  config.model.intermediate_size = 30;
  config.model.expert_size = 22;
  config.model.experts = 6;
  config.model.experts_per_token = 2;
  config.optimizer.eps = 1e-6;  // an expert with few tokens has small gradients, which make no step of rounding
  config.optimizer.lr = 5e-4;
  switch (problem) {
    case Problem::mixtral:
      config.model.architecture = "mixtral";
      config.model.expert_size = 0;
      config.model.experts = 8;
      config.model.experts_per_token = 3;
      break;
    case Problem::qwen:
      config.model.dense_layers = 1;
      config.model.tie_embeddings = true;
      break;
    case Problem::losses:
      config.loss = {.z_loss = 1e-3, .balance_loss = 0.1, .router_z_loss = 0.01};
      config.data.ignore_targets = {test::TokenFiles::silent_token};
      config.run.seed = 1;
      config.data.shuffle = true;  // an order of samples in which no token has two experts that are almost equally good
      break;
    case Problem::one_expert: config.model.experts_per_token = 1; break;
    case Problem::glm:
      config.model.architecture = "glm4_moe";
      config.model.experts_per_token = 3;
      config.model.router_groups = 3;
      config.model.router_groups_kept = 2;
      config.model.router_scale = 1.8;
      config.model.shared_size = 44;
      config.model.dense_layers = 1;
      config.loss = {.balance_loss = 0.1, .router_z_loss = 0.01, .balance_bias_rate = 0.01};
      break;
    case Problem::qwen2:
      config.model.architecture = "qwen2_moe";
      config.model.shared_size = 37;
      break;
  }
  return config;
}

/// Routers of zeros: all experts tie, every token goes to the first one, whose weight is 1, and nothing changes that.
inline store::ParameterInitializer values_of(Problem problem) {
  return [lively = test::lively_values(test::values_seed), problem](const model::Parameter& parameter,
                                                                    shard::Range elements, std::span<float> out) {
    lively(parameter, elements, out);
    if (problem == Problem::one_expert && parameter.role == model::Role::router)
      std::fill(out.begin(), out.end(), 0.0F);
  };
}

template <class Case>
class ExpertRun : public test::ParityTest<Case> {
 protected:
  using Base = test::ParityTest<Case>;
  using Problem = typename Base::Problem;

  static void SetUpTestSuite() {
    device::install_allocator();
    Base::SetUpTestSuite();
  }

  struct Outcome {
    test::Curve curve;
    std::vector<std::vector<std::int64_t>> first_loads;  ///< tokens of the first step by layer and expert
  };

  /// Trains; the last step by itself, which is held to the plan with the rows that it had.
  static Outcome train(const config::RunConfig& config, Problem problem, bool lane_threads) {
    const device::MemoryUse before = device::memory_use();
    Job job(config, *Base::world_, {.lane_threads = lane_threads, .poison = true});
    job.store().fill(values_of(problem));
    data::BatchReader reader(config.data, data::Split::train, config.model.vocab_size, config.run.seed,
                             job.batch_shape(), {});
    Outcome outcome;
    executor::StepResult result;
    for (int step = 0; step < config.train.steps; ++step) {
      const bool last = step + 1 == config.train.steps;
      if (last) device::reset_peaks();
      result = job.step(reader.next(), optim::learning_rate(config.lr, config.optimizer.lr, step, config.train.steps),
                        last || step + 2 == config.train.steps);
      outcome.curve.losses.push_back(result.loss);
      outcome.curve.z_losses.push_back(result.z_loss);
      outcome.curve.grad_norms.push_back(result.grad_norm);
      outcome.curve.router_losses.push_back(result.balance_loss + result.router_z_loss);
      if (step == 0) outcome.first_loads = result.expert_tokens;
    }
    expect_planned(config, job, result, before);
    expect_same_biases(job);
    return outcome;
  }

  /// The correction biases of every layer have the same bits on all ranks that hold it.
  static void expect_same_biases(Job& job) {
    const auto& of = job.model().sizes;
    const auto experts = static_cast<std::size_t>(of.decoder.experts->count);
    std::vector<std::uint32_t> least(static_cast<std::size_t>(of.layers) * experts, ~std::uint32_t{0});
    std::vector<std::uint32_t> most(least.size(), 0);
    for (const model::ComputeBlock& block : job.model().compute_blocks) {
      const at::Tensor& bias = block.layer < 0 ? at::Tensor() : job.store().choice_bias(block.reads.front());
      for (std::size_t e = 0; bias.defined() && e < experts; ++e) {
        const std::size_t at = static_cast<std::size_t>(block.layer) * experts + e;
        least[at] = most[at] = std::bit_cast<std::uint32_t>(bias.const_data_ptr<float>()[e]);
      }
    }
    const auto over_ranks = [&](std::vector<std::uint32_t>& values, MPI_Op op) {
      MPI_Allreduce(MPI_IN_PLACE, values.data(), static_cast<int>(values.size()), MPI_UINT32_T, op,
                    Base::world_->handle());
    };
    over_ranks(least, MPI_MIN);
    over_ranks(most, MPI_MAX);
    for (std::size_t i = 0; i < least.size(); ++i)
      if (least[i] != ~std::uint32_t{0} || most[i] != 0) {
        EXPECT_EQ(least[i], most[i]) << "layer " << i / experts;
      }
  }

  /// Trains on a mesh that divides no experts and nothing else, the first time: the loads of every case.
  static void expect_loads(const config::RunConfig& config, Problem problem, const Outcome& outcome) {
    auto& loads = loads_[problem];
    if (loads.empty()) {
      config::RunConfig whole = config;
      whole.mesh = {};
      whole.pipeline = {};
      whole.sync = {};
      whole.memory = {};
      whole.batch.micro = config.batch.global / Base::world_->size();
      whole.train.steps = 1;
      loads = train(whole, problem, true).first_loads;
    }
    EXPECT_EQ(outcome.first_loads, loads) << "as without expert ranks";
  }

  static void expect_planned(const config::RunConfig& config, Job& job, const executor::StepResult& result,
                             const device::MemoryUse& before) {
    planner::ReplayOptions options = planner::replay_options_of(config, job.resolved());
    options.shard_rank = job.mesh().shard_of(job.at());
    for (const executor::RowsMoved& rows : result.expert_rows)
      options.recorded_rows[{rows.block, rows.microbatch}] = {
          .received = rows.received, .sent = rows.sent, .fetched = rows.fetched};
    const planner::Memory planned = planner::replay_memory(job.schedule(), job.model(), job.layout(), options);
    const device::MemoryUse use = device::memory_use();
    const auto found = [&](device::Category category) {
      return use[device::Space::device].peak[category] - before[device::Space::device].current[category];
    };
    EXPECT_EQ(found(device::Category::activations), planned.activations);
    EXPECT_EQ(found(device::Category::parameters_unsharded), planned.parameters_unsharded);
    EXPECT_EQ(found(device::Category::parameters_sharded), planned.parameters_sharded);
    EXPECT_EQ(found(device::Category::gradients_unsharded), planned.gradients_unsharded);
    EXPECT_EQ(found(device::Category::optimizer), planned.optimizer);
    const planner::Traffic traffic = planner::replay_traffic(job.schedule(), job.model(), job.layout(), options);
    EXPECT_EQ(traffic.contains("expert"), config.mesh.expert > 1 || model::sums_loads(job.model()));
    const comm::TrafficTable counted = job.step_traffic();
    for (const auto& [group, operations] : traffic)
      for (const auto& [operation, moved] : operations) {
        const auto of_group = counted.find(group);
        ASSERT_NE(of_group, counted.end()) << group;
        const auto of_operation = of_group->second.find(operation);
        ASSERT_NE(of_operation, of_group->second.end()) << group << " " << operation;
        EXPECT_EQ(of_operation->second.bytes, moved.bytes) << group << " " << operation;
        EXPECT_EQ(of_operation->second.calls, moved.calls) << group << " " << operation;
      }
  }

 private:
  /// The tokens of the first step, by layer and expert.
  static inline std::map<Problem, std::vector<std::vector<std::int64_t>>> loads_;
};

}  // namespace trireme::train::experts_test
