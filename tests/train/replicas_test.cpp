// SPDX-License-Identifier: Apache-2.0
#include "trireme/train/replicas.hpp"

#include <gtest/gtest.h>

namespace trireme::train {
namespace {

TEST(Drifted, IsSilentWhereReplicasAgreeHoweverShardsDiffer) {
  EXPECT_EQ(drifted({.replicate = 3, .shard = 2}, {1, 2, 1, 2, 1, 2}), "");
  EXPECT_EQ(drifted({.replicate = 1, .shard = 4}, {1, 2, 3, 4}), "");
}

TEST(Drifted, NamesTheRankThatDiffersFromTheMajority) {
  EXPECT_EQ(drifted({.replicate = 3, .shard = 2}, {1, 2, 1, 9, 1, 2}), "dp rank 3");
  EXPECT_EQ(drifted({.replicate = 3, .shard = 2}, {7, 2, 1, 2, 1, 2}), "dp rank 0");
}

TEST(Drifted, OfTwoThatDifferTakesTheFirstAsRight) {
  EXPECT_EQ(drifted({.replicate = 2, .shard = 2}, {1, 2, 5, 6}), "dp ranks 2, 3");
}

}  // namespace
}  // namespace trireme::train
