// SPDX-License-Identifier: Apache-2.0
//
// Runs that stop and go on with other replicas, tensor sizes, pipelines and parts of sequences: at the next sample.
//
// ranks: 4
// timeout: 600
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "restart.hpp"

namespace trireme::train::meshes_mpi_test {
namespace {

constexpr int steps = restart_steps;

TEST_F(Restart, OnAnotherMeshContinuesAtTheNextSample) {
  const config::RunConfig unbroken = run("unbroken", steps);
  (void)train(unbroken, 4);
  for (const int replicate : {1, 2})
    for (const int ranks : {1, 2, 3, 4}) {
      config::RunConfig broken = run("broken-" + std::to_string(replicate) + "-" + std::to_string(ranks), 2);
      (void)train(broken, 4, replicate);
      broken.train.steps = 4;
      (void)train(broken, ranks);
      broken.train.steps = steps;
      (void)train(broken, 4, replicate);
      const test::Deviation off = test::deviation(curve(broken), curve(unbroken));
      EXPECT_LT(off.loss, 1e-6) << replicate << " replicas, then " << ranks << " ranks";
      EXPECT_LT(off.grad_norm, 1e-5) << replicate << " replicas, then " << ranks << " ranks";
    }
}

TEST_F(Restart, AtAnotherTensorSizeContinuesAtTheNextSample) {
  const config::RunConfig unbroken = run("unbroken", steps);
  (void)train(unbroken, 4);
  for (const std::int64_t ranks_per_file : {1, 2}) {
    config::RunConfig broken = run("broken-" + std::to_string(ranks_per_file), 2);
    broken.checkpoint.ranks_per_file = ranks_per_file;
    broken.batch.micro = 2;
    (void)train(broken, 4, 2, 2);
    broken.train.steps = 4;
    (void)train(broken, 2);
    broken.train.steps = steps;
    broken.batch.micro = 4;
    (void)train(broken, 4, 1, 2);
    const test::Deviation off = test::deviation(curve(broken), curve(unbroken));
    EXPECT_LT(off.loss, 1e-6) << ranks_per_file;
    EXPECT_LT(off.grad_norm, 1e-5) << ranks_per_file;
  }
}

/// Part of a run: a mesh, and the pipeline in it.
struct Leg {
  config::Mesh mesh;
  config::Pipeline pipeline{};
  std::int64_t micro = 1, ranks_per_file = 1;
  config::ContextMethod method = config::ContextMethod::gather;
};

class RestartOnLegs : public Restart {
 protected:
  static constexpr int change = 5, last = 10;

  /// Trains to step `until`; all ranks.
  void train_leg(config::RunConfig config, const Leg& leg, int until) const {
    config.mesh = leg.mesh;
    config.pipeline = leg.pipeline;
    config.context.method = leg.method;
    config.batch.micro = leg.micro;
    config.checkpoint.ranks_per_file = leg.ranks_per_file;
    config.train.steps = until;
    EXPECT_EQ(run_training(config, world_), ExitCode::done);
    MPI_Barrier(world_.handle());
  }

  /// A run that changes its leg after five of ten steps.
  [[nodiscard]] config::RunConfig run_of_ten(const std::string& name) const {
    config::RunConfig config = run(name, last);
    config.lr.end_step = last;
    config.data.seq_len = 16;
    return config;
  }

  /// Five steps on the first leg and five on the second one have the curve of ten without a break.
  void expect_changes(const std::vector<std::pair<Leg, Leg>>& changes,
                      const std::function<config::RunConfig(const std::string&)>& named,
                      const config::RunConfig& unbroken) const {
    for (std::size_t i = 0; i < changes.size(); ++i) {
      const config::RunConfig broken = named("broken-" + std::to_string(i));
      train_leg(broken, changes[i].first, change);
      train_leg(broken, changes[i].second, last);
      const test::Deviation off = test::deviation(curve(broken), curve(unbroken));
      EXPECT_LT(off.loss, 1e-6) << i;
      EXPECT_LT(off.grad_norm, 1e-5) << i;
    }
  }
};

TEST_F(RestartOnLegs, WithAnotherPipelineContinuesAtTheNextSample) {
  using enum config::PipelineKind;
  const auto deep = [&](const std::string& name) {
    config::RunConfig config = run_of_ten(name);
    config.model.layers = 4;
    config.model.tie_embeddings = true;
    config.optimizer.lr = 5e-4;
    config.optimizer.eps = 1e-6;  // suppresses steps by gradients that are only rounding
    return config;
  };
  const Leg plain{.mesh = {}};
  const Leg two{.mesh = {.replicate = 2, .pipeline = 2}, .micro = 6};
  const Leg four{.mesh = {.pipeline = 4}, .pipeline = {.schedule = gpipe}, .micro = 12};
  const Leg loop{.mesh = {.pipeline = 2}, .pipeline = {.schedule = interleaved}, .micro = 6, .ranks_per_file = 2};
  const Leg turn{.mesh = {.pipeline = 2}, .pipeline = {.schedule = zbv}, .micro = 6};  // one rank has both ends
  const Leg tensor{.mesh = {.tensor = 2, .pipeline = 2}, .micro = 8};
  const Leg divided{.mesh = {.context = 2, .pipeline = 2}, .pipeline = {.schedule = dualpipev}, .micro = 12};
  const Leg heads{.mesh = {.context = 2}, .micro = 6, .method = config::ContextMethod::heads};
  const config::RunConfig unbroken = deep("unbroken");
  train_leg(unbroken, plain, last);
  const std::vector<std::pair<Leg, Leg>> changes{{plain, two},    {two, plain},     {four, loop},
                                                 {loop, turn},    {turn, tensor},   {tensor, four},
                                                 {four, divided}, {divided, heads}, {heads, two}};
  expect_changes(changes, deep, unbroken);
  // The same pipeline continues bit for bit, whether what was saved was copied first or not.
  const config::RunConfig whole = deep("whole");
  config::RunConfig halves = deep("halves");
  halves.checkpoint.every = 2;
  train_leg(whole, two, steps);
  train_leg(halves, two, 3);
  train_leg(halves, two, steps);
  expect_same_end(whole, halves);
}

TEST_F(RestartOnLegs, WithSequencesDividedOtherwiseContinuesAtTheNextSample) {
  const auto divided = [&](const std::string& name) { return run_of_ten(name); };
  const Leg plain{.mesh = {}};
  const Leg two{.mesh = {.context = 2}, .micro = 6, .ranks_per_file = 2};
  const Leg replicated{.mesh = {.replicate = 2, .context = 2}, .micro = 4};
  const Leg four{.mesh = {.context = 4}, .micro = 12};
  const Leg tensor{.mesh = {.tensor = 2, .context = 2}, .micro = 8};
  const config::RunConfig unbroken = divided("unbroken");
  train_leg(unbroken, plain, last);
  const std::vector<std::pair<Leg, Leg>> changes{{plain, two}, {two, replicated}, {four, tensor}, {tensor, plain}};
  expect_changes(changes, divided, unbroken);
  const config::RunConfig whole = divided("whole");
  const config::RunConfig halves = divided("halves");
  train_leg(whole, replicated, steps);
  train_leg(halves, replicated, 3);
  train_leg(halves, replicated, steps);
  expect_same_end(whole, halves);
}

TEST_F(RestartOnLegs, WithExpertsDividedOtherwiseContinuesAtTheNextSample) {
  using enum config::PipelineKind;
  const auto mixture = [&](const std::string& name) {
    config::RunConfig config = run_of_ten(name);
    config.model.architecture = "glm4_moe";
    config.model.expert_size = config.model.shared_size = 22;
    config.model.experts = 4;
    config.model.experts_per_token = 2;
    config.loss.balance_bias_rate = 1e-3;  // less than scores differ by, so that biases do not swing back
    config.optimizer.eps = 1e-6;  // an expert with few tokens has small gradients, which make no step of rounding
    config.optimizer.lr = 5e-4;
    return config;
  };
  const Leg plain{.mesh = {}};
  const Leg two{.mesh = {.expert = 2}, .micro = 2, .ranks_per_file = 2};
  const Leg replicated{.mesh = {.replicate = 2, .expert = 2}};
  const Leg four{.mesh = {.expert = 4}, .micro = 3};
  const Leg pipeline{.mesh = {.pipeline = 2}, .micro = 6};
  const Leg tensor{.mesh = {.tensor = 2, .expert = 4}, .micro = 4};
  const Leg whole_experts{.mesh = {.tensor = 2}, .micro = 2, .ranks_per_file = 2};
  const Leg context{.mesh = {.context = 2, .expert = 4}, .micro = 6, .method = config::ContextMethod::heads};
  const Leg turn{.mesh = {.context = 2, .pipeline = 2, .expert = 2}, .pipeline = {.schedule = zb_h1}, .micro = 12};
  const Leg all{.mesh = {.tensor = 2, .pipeline = 2, .expert = 2}, .pipeline = {.schedule = zb_h1}, .micro = 8};
  const config::RunConfig unbroken = mixture("unbroken");
  train_leg(unbroken, plain, last);
  const std::vector<std::pair<Leg, Leg>> changes{
      {plain, two},  {two, four},    {four, replicated}, {replicated, pipeline}, {pipeline, tensor},
      {tensor, all}, {all, context}, {context, turn},    {turn, whole_experts},  {whole_experts, two}};
  expect_changes(changes, mixture, unbroken);
  const auto expected = tensors(unbroken, last);
  for (std::size_t i = 0; i < changes.size(); ++i)
    for (const auto& [name, values] : tensors(mixture("broken-" + std::to_string(i)), last)) {
      if (!name.starts_with("model/") || !name.ends_with("e_score_correction_bias")) continue;
      EXPECT_TRUE(std::ranges::count(values, 0.0F) < 4 && values == expected.at(name)) << i << " " << name;
    }
  // The same expert ranks continue bit for bit.
  const config::RunConfig whole = mixture("whole");
  const config::RunConfig halves = mixture("halves");
  train_leg(whole, two, steps);
  train_leg(halves, two, 3);
  train_leg(halves, two, steps);
  expect_same_end(whole, halves);
}
}  // namespace
}  // namespace trireme::train::meshes_mpi_test
