// SPDX-License-Identifier: Apache-2.0
//
// Experts divided over ranks against the plain program, which computes one token after the other: meshes, tensors saved
// for backward on device and host, routers that send every token to one expert. Loads of experts, which do not depend
// on the mesh; bytes and activations as planned with the recorded rows.
//
// ranks: 2 4 6 8
#include <gtest/gtest.h>

#include "expert_runs.hpp"

namespace trireme::train::expert_parallel_test {
namespace {

using experts_test::Problem;
using experts_test::problem_run;

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

class ExpertParallel : public experts_test::ExpertRun<Case> {};

TEST_P(ExpertParallel, FollowsThePlainProgramAndMovesWhatIsPlanned) {
  const Case& c = GetParam();
  const auto ranks = static_cast<std::int64_t>(world_->size());
  if (ranks % (c.mesh.replicate * c.mesh.expert) != 0) GTEST_SKIP() << "needs another number of ranks";
  config::RunConfig config = problem_run(c.problem, *files_);
  config.batch.micro = config.batch.global / (ranks * c.accumulation);
  config.mesh = c.mesh;
  config.sync = c.sync;
  config.memory = c.memory;
  expect_parity_and_loads(config, c.problem, train(config, c.problem, c.lane_threads));
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
