// SPDX-License-Identifier: Apache-2.0
#include "trireme/optim/norm.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "trireme/base/philox.hpp"

namespace trireme::optim {
namespace {

std::vector<float> normals(std::size_t count) {
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = static_cast<float>(normal_at(7, i));
  return values;
}

TEST(SumOfSquares, IsThatOfAPlainLoop) {
  const std::vector<float> all = normals(200'003);
  for (const std::size_t count : {0UL, 1UL, 15UL, 63UL, 64UL, 65UL, 1000UL, 65'536UL, 65'537UL, all.size()}) {
    double expected = 0;
    for (std::size_t i = 0; i < count; ++i) expected += double{all[i]} * double{all[i]};
    EXPECT_NEAR(sum_of_squares({all.data(), count}), expected, 1e-13 * expected) << count;
  }
}

TEST(SumOfSquares, AddsItsChunksInOrderWhateverTheThreads) {
  constexpr std::size_t chunk = 65'536;
  const std::vector<float> all = normals(20 * chunk + 777);
  double expected = 0;
  for (std::size_t begin = 0; begin < all.size(); begin += chunk) {
    expected +=
        sum_of_squares({all.data() + begin, std::min(chunk, all.size() - begin)});  // a single chunk: one thread
  }
  for (int repeat = 0; repeat < 10; ++repeat) EXPECT_EQ(sum_of_squares(all), expected);
}

TEST(SumOfSquares, IsNotFiniteExactlyWhenAValueIsNot) {
  std::vector<float> values(70'000, std::numeric_limits<float>::max());
  EXPECT_TRUE(std::isfinite(sum_of_squares(values)));
  for (const std::size_t place : {0UL, 17UL, 40'000UL, 65'535UL, 65'536UL, 69'999UL}) {
    for (const float bad :
         {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(), std::nanf("")}) {
      std::vector<float> spoilt(70'000, 1.0F);
      spoilt[place] = bad;
      EXPECT_FALSE(std::isfinite(sum_of_squares(spoilt))) << place;
    }
  }
}

TEST(ClipFactor, IsThatOfTorch) {
  EXPECT_DOUBLE_EQ(clip_factor(4.0, 1.0), 1.0 / 4.000001);
  EXPECT_DOUBLE_EQ(clip_factor(0.5, 1.0), 1.0);
  EXPECT_DOUBLE_EQ(clip_factor(0.0, 1.0), 1.0);
  EXPECT_DOUBLE_EQ(clip_factor(1.0, 1.0), 1.0 / 1.000001);
}

TEST(ClipFactor, LeavesGradientsAloneWhenClippingIsOff) { EXPECT_EQ(clip_factor(1e9, 0.0), 1.0); }

}  // namespace
}  // namespace trireme::optim
