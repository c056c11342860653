// SPDX-License-Identifier: Apache-2.0
#include "train/engine/replicas.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace trireme::train {
namespace {

TEST(CompareReplicas, IsSilentWhereReplicasAgreeHoweverShardsDiffer) {
  EXPECT_EQ(compare_replicas({.replicate = 3, .shard = 2}, {1, 2, 1, 2, 1, 2}), Drift{});
  EXPECT_EQ(compare_replicas({.replicate = 1, .shard = 4}, {1, 2, 3, 4}), Drift{});
}

TEST(CompareReplicas, TakesTheMajorityOfThreeAsRight) {
  EXPECT_EQ(compare_replicas({.replicate = 3, .shard = 2}, {1, 2, 1, 9, 1, 2}), (Drift{{3}, {}}));
  EXPECT_EQ(compare_replicas({.replicate = 3, .shard = 2}, {7, 2, 1, 2, 1, 2}), (Drift{{0}, {}}));
  EXPECT_EQ(compare_replicas({.replicate = 4, .shard = 1}, {5, 1, 1, 6}), (Drift{{0, 3}, {}}));
}

TEST(CompareReplicas, IdentifiesNoRankWithoutAMajority) {
  EXPECT_EQ(compare_replicas({.replicate = 2, .shard = 2}, {1, 2, 1, 6}), (Drift{{}, {1, 3}}));
  EXPECT_EQ(compare_replicas({.replicate = 3, .shard = 1}, {1, 2, 3}), (Drift{{}, {0, 1, 2}}));
  EXPECT_EQ(compare_replicas({.replicate = 4, .shard = 1}, {1, 2, 1, 2}), (Drift{{}, {0, 1, 2, 3}}));
}

TEST(DriftAsText, NamesTheRanksAndIsOnlyAsCertainAsTheBitsAre) {
  const auto name = [](int dp_rank) { return "dp rank " + std::to_string(dp_rank); };
  EXPECT_EQ(to_text({}, {.replicate = 2, .shard = 2}, name), "");
  const std::string two = to_text({{}, {1, 3}}, {.replicate = 2, .shard = 2}, name);
  EXPECT_THAT(two, testing::HasSubstr("dp rank 1, dp rank 3 hold different bits"));
  EXPECT_THAT(two, testing::HasSubstr("two replicas do not show which one is wrong"));
  const std::string three = to_text({{3}, {}}, {.replicate = 3, .shard = 2}, name);
  EXPECT_THAT(three, testing::HasSubstr("dp rank 3 no longer holds the bits on which the other replicas agree"));
  EXPECT_THAT(three, testing::HasSubstr("Exclude the node"));
}

}  // namespace
}  // namespace trireme::train
