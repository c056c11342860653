// SPDX-License-Identifier: Apache-2.0
#include "train/record/step_times.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace trireme::train {
namespace {

using testing::HasSubstr;

StepTimes times(const std::vector<double>& seconds) {
  StepTimes all;
  for (const double s : seconds) all.add(s);
  return all;
}

std::string named(int rank) { return "rank " + std::to_string(rank) + " on n" + std::to_string(rank / 2 + 1); }

TEST(StepTimes, ComputeQuantilesToABucket) {
  StepTimes all;
  for (int i = 1; i <= 100; ++i) all.add(i * 1e-3);
  EXPECT_EQ(all.steps(), 100U);
  for (const double share : {0.01, 0.5, 0.95, 1.0}) {
    EXPECT_GE(all.quantile(share), 0.9999 * share * 0.1);
    EXPECT_LE(all.quantile(share), 1.2 * share * 0.1);
  }
  EXPECT_EQ(StepTimes().quantile(0.5), 0);
}

TEST(StepTimes, TakeTheShortestAndTheLongest) {
  const StepTimes all = times({0, -1, 1e-9, 1e9});
  EXPECT_EQ(all.steps(), 4U);
  EXPECT_EQ(all.counts().front(), 3U);
  EXPECT_EQ(all.counts().back(), 1U);
}

TEST(Slowest, IsTheLongestMedianNotTheLongestStep) {
  const std::vector<StepTimes> ranks{times({0.1, 0.1, 9}), times({0.1, 0.1, 0.1}), times({0.3, 0.3, 0.3}),
                                     times({0.1, 0.1, 0.1})};
  const auto found = slowest(ranks);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->rank, 2);
  EXPECT_TRUE(found->straggles());
  EXPECT_THAT(to_text(*found, named), HasSubstr("rank 2 on n2 is a straggler"));
}

TEST(Slowest, IsFoundOfTwoRanksAndNotOfEqualOnes) {
  EXPECT_TRUE(slowest({times({0.1}), times({0.2})})->straggles());
  EXPECT_FALSE(slowest({times({0.1}), times({0.1})})->straggles());
  EXPECT_FALSE(slowest({times({0.1})})->straggles());
  EXPECT_FALSE(slowest({StepTimes(), StepTimes()}));
  EXPECT_FALSE(slowest({}));
}

TEST(StepTimesJson, HasEveryRankAndEveryStep) {
  const auto json = nlohmann::json::parse(to_json({times({0.1, 0.2}), times({0.5, 0.5})}, named));
  EXPECT_EQ(json["slowest"], "rank 1 on n1");
  ASSERT_EQ(json["ranks"].size(), 2U);
  int steps = 0;
  for (const auto& bucket : json["ranks"][0]["histogram"]) steps += bucket["steps"].get<int>();
  EXPECT_EQ(steps, 2);
  EXPECT_EQ(json["ranks"][0]["steps"], 2);
}

}  // namespace
}  // namespace trireme::train
