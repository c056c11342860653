// SPDX-License-Identifier: Apache-2.0
#include "trireme/comm/counters.hpp"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

namespace trireme::comm {
namespace {

TEST(Counters, AddUpByGroupAndOperation) {
  Counters counters;
  counters.add("shard", "all_gather", {100});
  counters.add("shard", "all_gather", {20});
  counters.add("replicate", "all_reduce", {7});
  const TrafficTable expected{{"shard", {{"all_gather", {.bytes = {120}, .calls = 2}}}},
                              {"replicate", {{"all_reduce", {.bytes = {7}, .calls = 1}}}}};
  EXPECT_EQ(counters.snapshot(), expected);
}

TEST(Counters, LoseNothingWhenLanesAddAtOnce) {
  Counters counters;
  std::vector<std::jthread> lanes;
  for (int lane = 0; lane < 4; ++lane)
    lanes.emplace_back([&] {
      for (int i = 0; i < 1000; ++i) counters.add("shard", "reduce_scatter", {3});
    });
  lanes.clear();
  EXPECT_EQ(counters.snapshot().at("shard").at("reduce_scatter"), (Traffic{.bytes = {12'000}, .calls = 4000}));
}

TEST(Difference, HoldsOnlyWhatWasCalledInBetween) {
  Counters counters;
  counters.add("shard", "all_gather", {100});
  counters.add("control", "barrier", {0});
  const TrafficTable earlier = counters.snapshot();
  counters.add("shard", "all_gather", {11});
  counters.add("tensor", "all_reduce", {5});
  const TrafficTable expected{{"shard", {{"all_gather", {.bytes = {11}, .calls = 1}}}},
                              {"tensor", {{"all_reduce", {.bytes = {5}, .calls = 1}}}}};
  EXPECT_EQ(difference(counters.snapshot(), earlier), expected);
  EXPECT_EQ(difference(earlier, earlier), TrafficTable{});
}

TEST(OptimalBytes, AreTheOthersShareOfThePaddedSize) {
  EXPECT_EQ(scatter_bytes({1000}, 1), Bytes{0});
  EXPECT_EQ(scatter_bytes({1000}, 4), Bytes{3000});
  EXPECT_EQ(all_reduce_bytes(1000, 4, 1), Bytes{0});
  EXPECT_EQ(all_reduce_bytes(1000, 4, 4), Bytes{2 * 3 * 1000});
  EXPECT_EQ(all_reduce_bytes(1001, 4, 4), Bytes{2 * 3 * 251 * 4});
  // Beyond 32 bits: Llama 70B over 3 ranks.
  EXPECT_EQ(all_reduce_bytes(70'000'000'001, 4, 3), Bytes{2LL * 2 * 23'333'333'334 * 4});
}

}  // namespace
}  // namespace trireme::comm
