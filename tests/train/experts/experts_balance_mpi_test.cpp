// SPDX-License-Identifier: Apache-2.0
//
// A router that sends every token to the same experts: the metrics show it, and the balance loss evens the loads.
//
// ranks: 2
#include <ATen/ops/equal.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <numeric>
#include <vector>

#include "support/jobs.hpp"
#include "train/record/metrics.hpp"
#include "trireme/data/batch_reader.hpp"
#include "trireme/optim/learning_rate.hpp"

namespace trireme::train::experts_balance_test {
namespace {

constexpr int steps = 100;

constexpr std::int64_t width = 72;

/// All tokens have a number in common, and the router takes it for a sign of the first two experts.
store::ParameterInitializer collapsed() {
  return [lively = test::lively_values(test::values_seed)](const model::Parameter& parameter, shard::Range elements,
                                                           std::span<float> out) {
    lively(parameter, elements, out);
    const bool router = parameter.role == model::Role::router;
    if (!router && parameter.role != model::Role::embedding) return;
    for (std::int64_t i = elements.begin; i < elements.end; ++i)
      if (i % width == 0)
        out[static_cast<std::size_t>(i - elements.begin)] = !router ? 1.0F : i / width < 2 ? 0.25F : 0;
  };
}

/// expert_load_max of the first step, and its mean over the last 20.
struct Loads {
  double first, last;
};

config::RunConfig mixture(const test::TokenFiles& files) {
  config::RunConfig config = test::odd_run(files, steps);
  config.model.architecture = "mixtral";
  config.model.layers = 2;
  config.model.experts = 8;
  config.model.experts_per_token = 2;
  config.model.intermediate_size = 24;
  config.optimizer.lr = 2e-3;
  config.lr = {.schedule = config::LrSchedule::constant, .warmup_steps = 0};
  config.batch = {.global = 8, .micro = 2};
  return config;
}

Loads loads(const test::TokenFiles& files, const mpi::Communicator& world, double balance_loss) {
  config::RunConfig config = mixture(files);
  config.loss.balance_loss = balance_loss;
  Job job(config, world, {});
  job.store().fill(collapsed());
  data::BatchReader reader(config.data, data::Split::train, config.model.vocab_size, config.run.seed, job.batch_shape(),
                           {});
  std::vector<double> all;
  for (int step = 0; step < steps; ++step) {
    const double lr = optim::learning_rate(config.lr, config.optimizer.lr, step, steps);
    const executor::StepResult result = job.step(reader.next(), lr, step + 1 == steps);
    EXPECT_EQ(result.balance_loss > 0, balance_loss > 0);
    all.push_back(expert_load(result.expert_tokens)->max);
  }
  return {all.front(), std::accumulate(all.end() - 20, all.end(), 0.0) / 20};
}

TEST(ExpertsBalance, ACollapseShowsInTheMetricsAndTheBalanceLossRepairsIt) {
  const mpi::Communicator world = mpi::Communicator::from(MPI_COMM_WORLD);
  const test::TokenFiles files(world, 257);
  const Loads alone = loads(files, world, 0), balanced = loads(files, world, 1);
  if (world.rank() == 0)
    std::printf("load of the busiest expert, at first and at last: %.2f %.2f, with the balance loss %.2f %.2f\n",
                alone.first, alone.last, balanced.first, balanced.last);
  EXPECT_GT(alone.first, 3.9) << "almost all tokens on 2 of 8 experts: 4 at most";
  EXPECT_EQ(balanced.first, alone.first);
  EXPECT_GT(alone.last, 3.5);
  EXPECT_LT(balanced.last, 3);
}

/// Correction biases by block as all ranks have them, if these are the same bits; what each rank has of the masters
/// among them.
std::vector<at::Tensor> shared_biases(Job& job, const mpi::Communicator& world) {
  std::vector<at::Tensor> biases;
  for (int b = 0; b < job.model().param_blocks(); ++b) {
    const ParamBlock block{b};
    const at::Tensor& bias = job.store().choice_bias(block);
    if (!bias.defined()) continue;
    const auto* const mine = bias.const_data_ptr<float>();
    std::vector<float> first(mine, mine + bias.numel());
    MPI_Bcast(first.data(), static_cast<int>(first.size()), MPI_FLOAT, 0, world.handle());
    EXPECT_EQ(std::memcmp(first.data(), mine, first.size() * sizeof(float)), 0) << b;
    for (const shard::Slice& slice : job.layout()[block].slices(job.store().shard_of(block))) {
      if (job.model()[{block, slice.parameter}].role != model::Role::router_bias) continue;
      const float* const master = job.store().master(block).const_data_ptr<float>() + slice.offset;
      EXPECT_TRUE(std::equal(master, master + slice.elements.size(), mine + slice.elements.begin)) << b;
    }
    biases.push_back(bias.clone());
  }
  return biases;
}

/// GLM-4-MoE in bf16, every layer computed twice, evaluated between steps: none of it counts tokens twice. Neither
/// weight decay nor bf16 is seen by biases.
TEST(ExpertsBalance, CorrectionBiasesRepairACollapseAndHaveTheSameBitsOnAllRanks) {
  const mpi::Communicator world = mpi::Communicator::from(MPI_COMM_WORLD);
  const test::TokenFiles files(world, 257);
  config::RunConfig config = mixture(files);
  config.model.architecture = "glm4_moe";
  config.model.expert_size = config.model.shared_size = 24;
  config.precision.compute = DType::bf16;
  config.memory.recompute = config::Recompute::block;
  config.loss.balance_bias_rate = 0.02;
  config.optimizer.weight_decay = 0.5;
  config.optimizer.no_decay = {};
  Job job(config, world, {});
  job.store().fill(test::lively_values(test::values_seed + 1));
  const auto reader = [&] {
    return data::BatchReader(config.data, data::Split::train, config.model.vocab_size, config.run.seed,
                             job.batch_shape(), {});
  };
  data::BatchReader batches = reader(), others = reader();
  (void)job.evaluate(others, 1);
  job.store().fill(collapsed());  // biases that ranks have shared are shared anew
  (void)job.evaluate(others, 1);
  std::vector<at::Tensor> expected = shared_biases(job, world);
  ASSERT_EQ(expected.size(), 2U);
  constexpr int bias_steps = 50;
  std::vector<double> all;
  for (int step = 0; step < bias_steps; ++step) {
    const executor::StepResult result = job.step(batches.next(), 1e-3, true);
    all.push_back(expert_load(result.expert_tokens)->max);
    for (std::size_t layer = 0; layer < expected.size(); ++layer)
      for (std::size_t e = 0; e < 8; ++e) {
        const double gap = static_cast<double>(config.batch.global * config.data.seq_len * 2) / 8 -
                           static_cast<double>(result.expert_tokens[layer][e]);
        expected[layer].mutable_data_ptr<float>()[e] += gap > 0 ? 0.02F : gap < 0 ? -0.02F : 0;
      }
    if (step % 10 == 0) (void)job.evaluate(others, 1);
  }
  const std::vector<at::Tensor> found = shared_biases(job, world);
  for (std::size_t layer = 0; layer < expected.size(); ++layer) EXPECT_TRUE(at::equal(found[layer], expected[layer]));
  if (world.rank() == 0)
    std::printf("load of the busiest expert, at first and at last: %.2f %.2f with correction biases\n", all.front(),
                all.back());
  EXPECT_GT(all.front(), 3);
  EXPECT_LT(std::accumulate(all.end() - 10, all.end(), 0.0) / 10, 2.6);
}

}  // namespace
}  // namespace trireme::train::experts_balance_test
