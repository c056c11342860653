// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>
#include <vector>

#include "trireme/base/error.hpp"
#include "trireme/train/engine/generate.hpp"

namespace trireme::train {
namespace {

const std::vector<float> logits{0.0F, std::log(4.0F), std::log(2.0F), std::log(1.0F), -50.0F};  // 1 : 4 : 2 : 1 : 0

/// Number of times each token is chosen at positions 0 to `draws`.
std::map<int, int> histogram(const Sampling& sampling, int draws = 8000) {
  std::map<int, int> counts;
  for (int i = 0; i < draws; ++i) ++counts[choose_token(logits, sampling, static_cast<std::uint64_t>(i))];
  return counts;
}

TEST(ChooseToken, TakesTheMostLikelyAtTemperatureZero) {
  EXPECT_EQ(histogram({.temperature = 0}), (std::map<int, int>{{1, 8000}}));
}

TEST(ChooseToken, FollowsTheModelsProbabilitiesAtTemperatureOne) {
  const auto counts = histogram({.temperature = 1});
  EXPECT_NEAR(counts.at(1), 4000, 200);
  EXPECT_NEAR(counts.at(2), 2000, 200);
  EXPECT_NEAR(counts.at(0), 1000, 150);
  EXPECT_NEAR(counts.at(3), 1000, 150);
  EXPECT_FALSE(counts.contains(4));
}

TEST(ChooseToken, IsBolderWithALowerTemperature) {
  EXPECT_GT(histogram({.temperature = 0.5}).at(1), 5500);  // 16 : 4 : 1 : 1
  EXPECT_LT(histogram({.temperature = 4}).at(1), 3500);
}

TEST(ChooseToken, KeepsToTheTopK) {
  const auto counts = histogram({.temperature = 1, .top_k = 2});
  EXPECT_EQ(counts.size(), 2U);
  EXPECT_NEAR(counts.at(1), 5333, 200);
  EXPECT_EQ(histogram({.temperature = 1, .top_k = 1}), (std::map<int, int>{{1, 8000}}));
}

TEST(ChooseToken, KeepsToTheTopP) {
  EXPECT_EQ(histogram({.temperature = 1, .top_p = 0.5}).size(), 1U);
  EXPECT_EQ(histogram({.temperature = 1, .top_p = 0.51}).size(), 2U);
  EXPECT_EQ(histogram({.temperature = 1, .top_p = 0}), (std::map<int, int>{{1, 8000}}));
}

TEST(ChooseToken, DependsOnSeedAndPositionOnly) {
  const Sampling sampling{.temperature = 1, .seed = 7};
  const Sampling other{.temperature = 1, .seed = 8};
  int same = 0;
  for (std::uint64_t i = 0; i < 200; ++i) {
    EXPECT_EQ(choose_token(logits, sampling, i), choose_token(logits, sampling, i));
    if (choose_token(logits, sampling, i) == choose_token(logits, other, i)) ++same;
  }
  EXPECT_LT(same, 150);
}

TEST(ChooseToken, RefusesLogitsThatAreNotFinite) {
  std::vector<float> broken = logits;
  broken[2] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_THROW((void)choose_token(broken, {.temperature = 0}, 0), NumericsError);
  EXPECT_THROW((void)choose_token(broken, {.temperature = 1}, 0), NumericsError);
}

}  // namespace
}  // namespace trireme::train
