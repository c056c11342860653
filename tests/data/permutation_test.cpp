// SPDX-License-Identifier: Apache-2.0
#include "data/permutation.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <vector>

#include "trireme/base/error.hpp"

namespace trireme::data {
namespace {

std::vector<std::int64_t> whole(std::uint64_t key, std::int64_t epoch, std::int64_t count) {
  std::vector<std::int64_t> places;
  for (std::int64_t i = 0; i < count; ++i) places.push_back(permuted(key, epoch, i, count));
  return places;
}

TEST(Permutation, IsABijectionForEveryCount) {
  for (std::int64_t count = 1; count <= 300; ++count) {
    const auto places = whole(7, 3, count);
    const std::set<std::int64_t> distinct(places.begin(), places.end());
    ASSERT_EQ(static_cast<std::int64_t>(distinct.size()), count);
    ASSERT_EQ(*distinct.begin(), 0);
    ASSERT_EQ(*distinct.rbegin(), count - 1);
  }
}

TEST(Permutation, IsRepeatableAndNewForEachEpochAndKey) {
  EXPECT_EQ(whole(7, 0, 100), whole(7, 0, 100));
  EXPECT_NE(whole(7, 0, 100), whole(7, 1, 100));
  EXPECT_NE(whole(7, 0, 100), whole(8, 0, 100));
}

TEST(Permutation, ReachesEveryOrderOfThreeAboutEquallyOften) {
  std::vector<int> seen(27);
  for (std::int64_t epoch = 0; epoch < 6000; ++epoch) {
    const auto p = whole(11, epoch, 3);
    ++seen[static_cast<std::size_t>(p[0] * 9 + p[1] * 3 + p[2])];
  }
  int orders = 0;
  for (const int times : seen) {
    if (times == 0) continue;
    ++orders;
    EXPECT_NEAR(times, 1000, 150);
  }
  EXPECT_EQ(orders, 6);
}

TEST(Permutation, LeavesNoOrderBehind) {
  constexpr std::int64_t count = 10007;
  const auto places = whole(5, 0, count);
  double sum = 0;
  int rising = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    const auto place = static_cast<double>(places[static_cast<std::size_t>(i)]);
    sum += (static_cast<double>(i) / count - 0.5) * (place / count - 0.5) * 12 / count;
    if (i > 0) rising += places[static_cast<std::size_t>(i)] > places[static_cast<std::size_t>(i - 1)] ? 1 : 0;
  }
  EXPECT_LT(std::abs(sum), 0.04);  // correlation: 4 standard deviations of a random permutation
  EXPECT_NEAR(rising, count / 2, 4 * std::sqrt(count / 12.0));
}

TEST(Permutation, WorksAtTheLargestSizes) {
  constexpr std::int64_t count = (std::int64_t{1} << 62) + 12345;
  const std::int64_t place = permuted(1, 2, count - 1, count);
  EXPECT_GE(place, 0);
  EXPECT_LT(place, count);
  EXPECT_THROW((void)permuted(1, 2, count, count), BugError);
}

// Changing these numbers changes the data order of every shuffled run that is restarted.
TEST(Permutation, KeepsItsValuesFromVersionToVersion) {
  EXPECT_EQ(whole(42, 0, 10), (std::vector<std::int64_t>{3, 7, 8, 2, 4, 0, 9, 1, 5, 6}));
  EXPECT_EQ(permuted(42, 1, 123456789, 1000000007), 577705562);
}

}  // namespace
}  // namespace trireme::data
