// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <map>
#include <numeric>
#include <string>
#include <vector>

#include "support/parity.hpp"
#include "support/training/as_planned.hpp"
#include "support/training/mixtures.hpp"
#include "trireme/device/allocator.hpp"

/// Runs with divided experts, compared with the plain program and with the plan for the recorded rows.
namespace trireme::train::experts_test {

constexpr int steps = 8;

enum class Problem { mixtral, qwen, losses, one_expert, glm, qwen2 };

inline config::RunConfig problem_run(Problem problem, const test::TokenFiles& files) {
  config::RunConfig config = test::odd_mixture(files, steps);
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
      test::add_router_losses(config);
      config.run.seed = 1;
      config.data.shuffle = true;  // an order of samples in which no token has two experts that are almost equally good
      break;
    case Problem::one_expert: config.model.experts_per_token = 1; break;
    case Problem::glm: test::make_glm(config); break;
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

  /// Trains; the last step runs separately and is compared with the plan for its rows.
  static Outcome train(const config::RunConfig& config, Problem problem, bool lane_threads) {
    const device::MemoryUse before = device::memory_use();
    Job job(config, *Base::world_, {.lane_threads = lane_threads, .poison = true});
    job.store().fill(values_of(problem));
    const std::vector<executor::StepResult> results = test::last_step_alone(job, config);
    Outcome outcome{.curve = {}, .first_loads = results.front().expert_tokens};
    for (const executor::StepResult& result : results) test::append(outcome.curve, result);
    expect_planned(config, job, results.back(), before);
    expect_same_biases(job);
    return outcome;
  }

  /// Curve of the plain program; with one expert all of them tie for every token, also in the initial values.
  static const test::Curve& plain_of(Problem problem) {
    if (problem != Problem::one_expert) return Base::plain(problem);
    static const test::Curve curve =
        test::plain_curve(problem_run(problem, *Base::files_), *Base::world_, {}, at::kFloat, 0, values_of(problem));
    return curve;
  }

  /// The curve, the loads, and with one expert that it got all tokens.
  static void expect_parity_and_loads(const config::RunConfig& config, Problem problem, const Outcome& outcome) {
    Base::expect_parity(outcome.curve, plain_of(problem));
    expect_loads(config, problem, outcome);
    if (problem != Problem::one_expert) return;
    for (const auto& tokens : outcome.first_loads) {
      EXPECT_EQ(tokens.front(), config.batch.global * config.data.seq_len);
      EXPECT_EQ(std::accumulate(tokens.begin() + 1, tokens.end(), std::int64_t{0}), 0);
    }
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
    const planner::ReplayOptions options = test::plan_options(config, job, result.expert_rows);
    const planner::Memory planned = planner::replay_memory(job.schedule(), job.model(), job.layout(), options);
    test::expect_memory(before, planned, job);
    const planner::Traffic traffic = planner::replay_traffic(job.schedule(), job.model(), job.layout(), options);
    EXPECT_EQ(traffic.contains("expert"), config.mesh.expert > 1 || model::sums_loads(job.model()));
    test::expect_traffic(job.step_traffic(), traffic);
  }

 private:
  /// The tokens of the first step, by layer and expert.
  static inline std::map<Problem, std::vector<std::vector<std::int64_t>>> loads_;
};

}  // namespace trireme::train::experts_test
