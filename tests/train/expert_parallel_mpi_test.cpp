// SPDX-License-Identifier: Apache-2.0
//
// Experts divided over ranks against the plain program, which computes one token after the other: meshes, what is kept
// for backward, where it lies, routers that send every token to one expert. The loads of experts, which no mesh
// changes; bytes and activations as planned with the rows that were recorded.
//
// ranks: 2 4 6 8
#include <gtest/gtest.h>

#include <numeric>

#include "support/parity.hpp"
#include "trireme/device/allocator.hpp"
#include "trireme/device/memory.hpp"
#include "trireme/optim/learning_rate.hpp"
#include "trireme/planner/replay.hpp"

namespace trireme::train::expert_parallel_test {
namespace {

constexpr int steps = 8;

enum class Problem { mixtral, qwen, losses, one_expert, glm, qwen2 };

config::RunConfig problem_run(Problem problem, const test::TokenFiles& files) {
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
store::ParameterInitializer values_of(Problem problem) {
  return [lively = test::lively_values(test::values_seed), problem](const model::Parameter& parameter,
                                                                    shard::Range elements, std::span<float> out) {
    lively(parameter, elements, out);
    if (problem == Problem::one_expert && parameter.role == model::Role::router)
      std::fill(out.begin(), out.end(), 0.0F);
  };
}

struct Case {
  std::string name;
  Problem problem = Problem::qwen;
  config::Mesh mesh{};
  config::Sync sync{};
  config::Memory memory{};
  int accumulation = 2;
  bool lane_threads = true;
};

std::ostream& operator<<(std::ostream& out, const Case& c) { return out << c.name; }

std::vector<Case> cases() {
  using enum config::Recompute;
  constexpr auto deferred = config::SyncPolicy::deferred;
  return {
      {.name = "Two", .mesh = {.expert = 2}},
      {.name = "TwoOnOneThread", .mesh = {.expert = 2}, .memory = {.recompute = none}, .lane_threads = false},
      {.name = "TwoReplicated", .problem = Problem::losses, .mesh = {.replicate = 2, .expert = 2}},
      {.name = "TwoReplicatedEveryTime",
       .mesh = {.replicate = 2, .expert = 2},
       .sync = {.policy = config::SyncPolicy::immediate_all}},
      {.name = "ThreeRecomputed", .problem = Problem::losses, .mesh = {.expert = 3}, .memory = {.recompute = block}},
      {.name = "SixKept",
       .mesh = {.expert = 6},
       .sync = {.policy = deferred, .reshard_after_forward = 1, .reshard_after_backward = false}},
      {.name = "FourOfMixtral", .problem = Problem::mixtral, .mesh = {.expert = 4}, .sync = {.policy = deferred}},
      {.name = "EightOfMixtral", .problem = Problem::mixtral, .mesh = {.expert = 8}, .memory = {.recompute = none}},
      {.name = "TwoOfMixtralOnHost",
       .problem = Problem::mixtral,
       .mesh = {.expert = 2},
       .memory = {.offload = config::Offload::parameters}},
      {.name = "TwoWithOptimizerOnHost",
       .mesh = {.expert = 2},
       .memory = {.offload = config::Offload::optimizer, .offload_fraction = 0.5}},
      {.name = "TwoRecomputedAndOffloaded",
       .mesh = {.expert = 2},
       .memory = {.recompute = block,
                  .recompute_every = 2,
                  .activation_offload = true,
                  .activation_offload_min_bytes = Bytes{0}}},
      {.name = "TwoOfGlm", .problem = Problem::glm, .mesh = {.expert = 2}, .memory = {.recompute = none}},
      {.name = "TwoOfGlmReplicatedAndRecomputed",
       .problem = Problem::glm,
       .mesh = {.replicate = 2, .expert = 2},
       .memory = {.recompute = block, .offload = config::Offload::parameters}},
      {.name = "TwoOfQwen2", .problem = Problem::qwen2, .mesh = {.expert = 2}, .lane_threads = false},
      {.name = "ThreeOfQwen2Recomputed",
       .problem = Problem::qwen2,
       .mesh = {.expert = 3},
       .memory = {.recompute = block, .activation_offload = true, .activation_offload_min_bytes = Bytes{0}}},
      {.name = "AllTokensToOneOfTwo", .problem = Problem::one_expert, .mesh = {.expert = 2}},
      {.name = "AllTokensToOneOfThree",
       .problem = Problem::one_expert,
       .mesh = {.expert = 3},
       .memory = {.recompute = block}},
  };
}

class ExpertParallel : public test::ParityTest<Case> {
 protected:
  static void SetUpTestSuite() {
    device::install_allocator();
    test::ParityTest<Case>::SetUpTestSuite();
  }

  struct Outcome {
    test::Curve curve;
    std::vector<std::vector<std::int64_t>> first_loads;  ///< tokens of the first step by layer and expert
  };

  /// Trains; the last step by itself, which is held to the plan with the rows that it had.
  static Outcome train(const config::RunConfig& config, Problem problem, bool lane_threads) {
    const device::MemoryUse before = device::memory_use();
    Job job(config, *world_, {.lane_threads = lane_threads, .poison = true});
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
    return outcome;
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
    EXPECT_EQ(traffic.contains("expert"), config.mesh.expert > 1);
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

  static const test::Curve& plain_of(Problem problem) {
    if (problem != Problem::one_expert) return plain(problem);
    static const test::Curve curve = [] {
      const config::RunConfig config = problem_run(Problem::one_expert, *files_);
      test::Parameters parameters = test::whole_parameters(config, values_of(Problem::one_expert));
      return test::plain_train(config, parameters, steps, {});
    }();
    return curve;
  }

  /// The tokens of the first step, by layer and expert, of every case of a problem, and of one without expert ranks.
  static inline std::map<Problem, std::vector<std::vector<std::int64_t>>> loads_;
};

TEST_P(ExpertParallel, FollowsThePlainProgramAndMovesWhatIsPlanned) {
  const Case& c = GetParam();
  const auto ranks = static_cast<std::int64_t>(world_->size());
  if (ranks % (c.mesh.replicate * c.mesh.expert) != 0) GTEST_SKIP() << "needs another number of ranks";
  config::RunConfig config = problem_run(c.problem, *files_);
  config.batch.micro = config.batch.global / (ranks * c.accumulation);
  if (!loads_.contains(c.problem)) {
    config::RunConfig whole = config;
    whole.train.steps = 1;
    loads_[c.problem] = train(whole, c.problem, true).first_loads;
  }
  config.mesh = c.mesh;
  config.sync = c.sync;
  config.memory = c.memory;
  const Outcome outcome = train(config, c.problem, c.lane_threads);
  expect_parity(outcome.curve, plain_of(c.problem));
  EXPECT_EQ(outcome.first_loads, loads_.at(c.problem)) << "as without expert ranks";
  if (c.problem != Problem::one_expert) return;
  for (const auto& tokens : outcome.first_loads) {
    EXPECT_EQ(tokens.front(), config.batch.global * config.data.seq_len);
    EXPECT_EQ(std::accumulate(tokens.begin() + 1, tokens.end(), std::int64_t{0}), 0);
  }
}

INSTANTIATE_TEST_SUITE_P(, ExpertParallel, testing::ValuesIn(cases()),
                         [](const testing::TestParamInfo<Case>& info) { return info.param.name; });

/// The loss that evaluation has of the first samples.
double evaluated(const config::RunConfig& config, const mpi::Communicator& world) {
  Job job(config, world, {.trains = false});
  job.store().fill(test::lively_values(test::values_seed));
  data::BatchReader reader(config.data, data::Split::train, config.model.vocab_size, config.run.seed,
                           job.batch_shape());
  return job.evaluate(reader, 2).loss;
}

TEST(ExpertEvaluation, HasTheLossOfOtherMeshes) {
  const mpi::Communicator world = mpi::Communicator::from(MPI_COMM_WORLD);
  const test::TokenFiles files(world, 257);
  config::RunConfig config = problem_run(Problem::qwen, files);
  config.batch.micro = config.batch.global / world.size();
  const double whole = evaluated(config, world);
  config.mesh.expert = 2;
  EXPECT_NEAR(evaluated(config, world), whole, 1e-6 * whole);
}

}  // namespace
}  // namespace trireme::train::expert_parallel_test
