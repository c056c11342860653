// SPDX-License-Identifier: Apache-2.0
#include "kernels/simd/lanes.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace trireme::kernels {
namespace {

TEST(FastExp, IsWithinTwoUlpOfExpOverItsRange) {
  double worst = 0;
  for (double x = -87; x <= 88; x += 1e-4) {
    const auto argument = static_cast<float>(x);
    const double exact = std::exp(static_cast<double>(argument));
    worst = std::max(worst, std::abs(fast_exp(argument) - exact) / exact);
  }
  EXPECT_LT(worst, 2 * 0x1p-23);
}

TEST(FastExp, IsOneAtZeroAndStaysFiniteOutsideItsRange) {
  EXPECT_EQ(fast_exp(0.0F), 1.0F);
  EXPECT_LT(fast_exp(-1000.0F), 1e-37F);
  EXPECT_LT(fast_exp(-INFINITY), 1e-37F);
  EXPECT_TRUE(std::isfinite(fast_exp(1000.0F)));
  EXPECT_TRUE(std::isnan(fast_exp(NAN)));
}

TEST(LaneSum, AddsEveryTermOnceForAnyLength) {
  std::vector<float> values(1000);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i + 1);
  for (std::int64_t n : {0, 1, 7, 8, 31, 32, 33, 45, 100, 1000}) {
    const float sum = lane_sum(n, [&](std::int64_t i, auto lanes) { return load(values.data() + i, lanes); });
    EXPECT_EQ(sum, static_cast<float>(n * (n + 1) / 2)) << n;
  }
}

TEST(LaneMax, FindsTheMaximumWhereverItIs) {
  for (std::int64_t n : {1, 8, 32, 45, 71}) {
    for (std::int64_t at = 0; at < n; ++at) {
      std::vector<float> values(static_cast<std::size_t>(n), -2.0F);
      values[static_cast<std::size_t>(at)] = -1.0F;
      const float top = lane_max(
          n, [&](std::int64_t i, auto lanes) { return keep(load(values.data() + i, lanes), eight(-INFINITY), lanes); });
      EXPECT_EQ(top, -1.0F);
    }
  }
}

TEST(Lanes, StoreWritesOnlyTheirOwn) {
  for (std::int64_t n = 1; n < 8; ++n) {
    c10::BFloat16 halves[8] = {};
    float values[8] = {};
    store(values, eight(3.0F), First{n});
    store(halves, eight(3.0F), First{n});
    for (std::int64_t i = 0; i < 8; ++i) {
      EXPECT_EQ(values[i], i < n ? 3.0F : 0.0F);
      EXPECT_EQ(static_cast<float>(halves[i]), i < n ? 3.0F : 0.0F);
    }
  }
}

}  // namespace
}  // namespace trireme::kernels
