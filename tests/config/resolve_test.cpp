// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "config/sample_run.hpp"

namespace trireme::config {
namespace {

using testing::AllOf;
using testing::HasSubstr;

RunConfig run_with(Mesh mesh, Batch batch) {
  RunConfig config = with({});
  config.mesh = mesh;
  config.batch = batch;
  return config;
}

std::string refusal_of(const RunConfig& config, int ranks) {
  try {
    (void)resolve(config, ranks);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

TEST(Resolve, GivesTheRanksLeftToTheShardAxis) {
  const Resolved four = resolve(run_with({}, {.global = 16, .micro = 2}), 4);
  EXPECT_EQ(four.shard, 4);
  EXPECT_EQ(four.dp_size(), 4);
  EXPECT_EQ(four.accumulation, 2);
  const Resolved mixed = resolve(run_with({.replicate = 2, .tensor = 2}, {.global = 24, .micro = 1}), 12);
  EXPECT_EQ(mixed.shard, 3);
  EXPECT_EQ(mixed.dp_size(), 6);
  EXPECT_EQ(mixed.accumulation, 4);
}

TEST(Resolve, RefusesAStepOfMoreOperationsThanCanBeHeld) {
  EXPECT_THAT(refusal_of(run_with({}, {.global = 1 << 30, .micro = 1}), 1),
              AllOf(HasSubstr("1073741824 microbatches of 1"), HasSubstr("at most 32768 with 2 layers"),
                    HasSubstr("larger batch.micro")));
  EXPECT_EQ(resolve(run_with({}, {.global = 1 << 15, .micro = 1}), 1).accumulation, 1 << 15);
}

TEST(Resolve, RefusesAMeshThatDoesNotFitTheRanks) {
  EXPECT_THAT(refusal_of(run_with({.shard = 3}, {.global = 12, .micro = 1}), 4),
              AllOf(HasSubstr("mesh.shard 3 = 3, but there are 4 ranks"), HasSubstr("start 3 ranks"),
                    HasSubstr("mesh.shard = 4")));
  EXPECT_THAT(refusal_of(run_with({.replicate = 2, .tensor = 2}, {.global = 12, .micro = 1}), 6),
              AllOf(HasSubstr("4 does not divide the 6 ranks"), HasSubstr("start 4 or 8 ranks")));
  EXPECT_THAT(refusal_of(run_with({.tensor = 4}, {.global = 12, .micro = 1}), 3), HasSubstr("start 4 ranks"));
}

TEST(Resolve, DividesSequencesOverContextRanksInTwoRunsEach) {
  RunConfig config = run_with({.tensor = 2, .context = 3}, {.global = 4, .micro = 1});
  config.data.seq_len = 24;
  const Resolved mesh = resolve(config, 12);
  EXPECT_EQ(mesh.shard, 2);
  EXPECT_EQ(mesh.dp_size(), 2) << "context ranks train on the same sequences";
  EXPECT_EQ(mesh.shards(), 6);
  EXPECT_EQ(mesh.accumulation, 2);
  config.data.seq_len = 26;
  EXPECT_THAT(refusal_of(config, 12), AllOf(HasSubstr("mesh.context: data.seq_len 26 cannot be cut into the 2 x 3 = 6"),
                                            HasSubstr("data.seq_len = 24 or 30")));
  config.data.seq_len = 30;
  config.mesh.sequence_parallel = true;
  config.mesh.tensor = 4;
  EXPECT_THAT(refusal_of(config, 12), AllOf(HasSubstr("/ mesh.context 3 = 10 tokens cannot be cut into mesh.tensor 4"),
                                            HasSubstr("data.seq_len = 24 or 48")));
  config.mesh.tensor = 1;
  config.mesh.sequence_parallel = false;
  config.batch.global = 4;
  config.sync.reshard_after_forward = 5;
  EXPECT_THAT(refusal_of(config, 12),
              HasSubstr("a group of 5 does not divide the 12 shards (mesh.shard 4 x mesh.context 3)"));
  config.device.cuda_graphs = true;
  EXPECT_THAT(refusal_of(config, 12), HasSubstr("device.cuda_graphs: not available with mesh.context > 1"));
}

TEST(Resolve, DividesExpertsOverNeighboursOfTheShardAxis) {
  RunConfig config = run_with({.expert = 3}, {.global = 12, .micro = 1});
  const Resolved mesh = resolve(config, 6);
  EXPECT_EQ(mesh.expert, 3);
  EXPECT_EQ(mesh.dp_size(), 6) << "expert ranks train on samples of their own";
  EXPECT_EQ(mesh.expert_rank(mesh.coordinates({4})), 1);
  config.mesh.expert = 4;
  EXPECT_THAT(refusal_of(config, 6),
              HasSubstr("mesh.expert: 4 does not divide the 6 ranks of mesh.shard 6; set 3 or 6"));
}

TEST(Resolve, FoldsExpertRanksOutOfShardContextAndTensorRanks) {
  RunConfig config = run_with({.tensor = 2, .context = 2, .pipeline = 2, .expert = 8}, {.global = 12, .micro = 1});
  config.data.seq_len = 24;
  const Resolved mesh = resolve(config, 16);
  EXPECT_EQ(mesh.shard, 2);
  std::vector<int> of_ranks;
  for (int rank = 0; rank < 16; ++rank) of_ranks.push_back(mesh.expert_rank(mesh.coordinates({rank})));
  EXPECT_THAT(of_ranks, testing::ElementsAre(0, 1, 2, 3, 4, 5, 6, 7, 0, 1, 2, 3, 4, 5, 6, 7));
  config.mesh.expert = 3;
  EXPECT_THAT(refusal_of(config, 16), HasSubstr("mesh.expert: 3 does not divide the 8 ranks of mesh.shard 2 x "
                                                "mesh.context 2 x mesh.tensor 2; set 2 or 4"));
}

TEST(Resolve, RefusesToSendTokensToTheirExpertsOnceForEachTensorRank) {
  RunConfig config = run_with({.tensor = 2}, {.global = 4, .micro = 1});
  config.model.experts = 4;
  EXPECT_NO_THROW(require_trainable(config));
  config.mesh.sequence_parallel = false;
  EXPECT_THROW(require_trainable(config), ConfigError);
  config.model.experts = 0;
  EXPECT_NO_THROW(require_trainable(config));
}

TEST(Resolve, RefusesWhatExpertParallelismDoesNotDoYet) {
  const auto refusal = [](Mesh mesh, auto&& change) {
    RunConfig config = run_with(mesh, {.global = 12, .micro = 1});
    config.data.seq_len = 24;
    change(config);
    return refusal_of(config, 4);
  };
  EXPECT_THAT(refusal({.expert = 2}, [](RunConfig& c) { c.device.cuda_graphs = true; }),
              HasSubstr("device.cuda_graphs: not available with mesh.expert > 1"));
  EXPECT_THAT(refusal({.expert = 2}, [](RunConfig& c) { c.sync.reshard_after_forward = 2; }),
              HasSubstr("sync.reshard_after_forward: not available with mesh.expert > 1"));
  EXPECT_THAT(refusal({.tensor = 2}, [](RunConfig& c) { c.model.experts = 4, c.sync.reshard_after_forward = 2; }),
              HasSubstr("sync.reshard_after_forward: not available with experts and mesh.tensor > 1"));
  EXPECT_EQ(refusal({.expert = 2}, [](RunConfig& c) { c.sync.reshard_after_forward = 1; }), "");
}

TEST(Resolve, LetsContextRanksTrainOnGpus) {
  RunConfig config = run_with({.context = 2}, {.global = 4, .micro = 1});
  config.data.seq_len = 8;
  for (const DeviceType type : {DeviceType::cpu, DeviceType::cuda}) {
    config.device.type = type;
    EXPECT_NO_THROW(require_trainable(config));
    EXPECT_NO_THROW((void)resolve(config, 4));
  }
}

TEST(Resolve, NamesTheNearestBatchesThatFit) {
  EXPECT_THAT(refusal_of(run_with({}, {.global = 20, .micro = 2}), 3),
              AllOf(HasSubstr("20 is not a whole multiple of batch.micro 2 x 3 data-parallel ranks = 6"),
                    HasSubstr("batch.global = 18 or 24")));
  EXPECT_THAT(refusal_of(run_with({}, {.global = 8, .micro = 8}), 4),
              AllOf(HasSubstr("batch.global = 32"), HasSubstr("or batch.micro = 2")));
  EXPECT_THAT(refusal_of(run_with({}, {.global = 1'000'000'000'039, .micro = 500'000'000'000}), 1),
              HasSubstr("or batch.micro = 1"));
}

TEST(Resolve, RefusesABatchSmallerThanTheRanksWithTheRemedy) {
  EXPECT_THAT(refusal_of(run_with({}, {.global = 2, .micro = 1}), 4),
              AllOf(HasSubstr("every one of them needs a sequence"), HasSubstr("tensor parallelism"),
                    HasSubstr("batch.global = 4")));
}

TEST(Resolve, ReportsGroupAndBatchTogether) {
  RunConfig config = run_with({}, {.global = 5, .micro = 1});
  config.sync.reshard_after_forward = 3;
  EXPECT_THAT(refusal_of(config, 4), AllOf(HasSubstr("batch.global: 5"), HasSubstr("a group of 3 does not divide")));
}

}  // namespace
}  // namespace trireme::config
