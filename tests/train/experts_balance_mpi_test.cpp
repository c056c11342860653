// SPDX-License-Identifier: Apache-2.0
//
// A router that sends every token to the same experts: the metrics show it, and the balance loss evens the loads.
//
// ranks: 2
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
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

Loads loads(const test::TokenFiles& files, const mpi::Communicator& world, double balance_loss) {
  config::RunConfig config = test::odd_run(files, steps);
  config.model.architecture = "mixtral";
  config.model.layers = 2;
  config.model.experts = 8;
  config.model.experts_per_token = 2;
  config.model.intermediate_size = 24;
  config.optimizer.lr = 2e-3;
  config.lr = {.schedule = config::LrSchedule::constant, .warmup_steps = 0};
  config.loss.balance_loss = balance_loss;
  config.batch = {.global = 8, .micro = 2};
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

}  // namespace
}  // namespace trireme::train::experts_balance_test
