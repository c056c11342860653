// SPDX-License-Identifier: Apache-2.0
#include "trireme/kernels/lanes.hpp"

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
  for (std::int64_t n : {0, 1, 31, 32, 33, 100, 1000}) {
    EXPECT_EQ(lane_sum(n, [](std::int64_t i) { return static_cast<float>(i + 1); }),
              static_cast<float>(n * (n + 1) / 2));
  }
}

TEST(LaneMax, FindsTheMaximumWhereverItIs) {
  for (std::int64_t n : {1, 32, 45}) {
    for (std::int64_t at = 0; at < n; ++at) {
      EXPECT_EQ(lane_max(n, [&](std::int64_t i) { return i == at ? -1.0F : -2.0F; }), -1.0F);
    }
  }
}

}  // namespace
}  // namespace trireme::kernels
