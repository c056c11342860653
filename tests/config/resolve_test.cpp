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
