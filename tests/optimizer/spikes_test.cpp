// SPDX-License-Identifier: Apache-2.0
#include "trireme/optimizer/spikes.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace trireme::optimizer::spikes_test {
namespace {

/// `steps` losses of 2 and 4 in turn, norms of 1 and 3.
SpikeWindow window(std::size_t steps) {
  SpikeWindow spikes;
  for (std::size_t i = 0; i < steps; ++i) spikes.add(i % 2 == 0 ? 2 : 4, i % 2 == 0 ? 1 : 3);
  return spikes;
}

TEST(SpikeWindow, MeasuresTheLargerDistanceInStandardDeviationsOfASample) {
  const double deviation = std::sqrt(64.0 / 63);  // torch.std: divisor n - 1
  EXPECT_DOUBLE_EQ(*window(64).score(3 + 2 * deviation, 2), 2);
  EXPECT_DOUBLE_EQ(*window(64).score(3, 2 + 5 * deviation), 5);
  EXPECT_DOUBLE_EQ(*window(64).score(3 - 8 * deviation, 2 - deviation), -1) << "below the mean is no spike";
}

TEST(SpikeWindow, HasASpikeAboveSixDeviationsOfEither) {
  const double deviation = std::sqrt(64.0 / 63);
  EXPECT_FALSE(window(64).is_spike(3 + 5.999 * deviation, 2));
  EXPECT_TRUE(window(64).is_spike(3 + 6.001 * deviation, 2));
  EXPECT_FALSE(window(64).is_spike(3, 2 + 5.999 * deviation));
  EXPECT_TRUE(window(64).is_spike(3, 2 + 6.001 * deviation));
}

TEST(SpikeWindow, HasNoSpikeBeforeItHolds64Steps) {
  EXPECT_FALSE(window(63).score(1e9, 1e9));
  EXPECT_FALSE(window(63).is_spike(1e9, 1e9));
  EXPECT_TRUE(window(64).is_spike(1e9, 1e9));
}

TEST(SpikeWindow, KeepsTheLast128Steps) {
  SpikeWindow spikes = window(200);
  EXPECT_EQ(spikes.losses.size(), 128U);
  for (int i = 0; i < 128; ++i) spikes.add(7, 8);
  EXPECT_EQ(spikes.losses, std::vector<double>(128, 7));
  EXPECT_EQ(spikes.grad_norms, std::vector<double>(128, 8));
}

TEST(SpikeWindow, NeverTakesStepsThatAreNotFinite) {
  const double inf = std::numeric_limits<double>::infinity(), nan = std::numeric_limits<double>::quiet_NaN();
  SpikeWindow spikes = window(64);
  for (const double bad : {inf, -inf, nan}) {
    spikes.add(bad, 1);
    spikes.add(1, bad);
    EXPECT_FALSE(spikes.score(bad, 1));
    EXPECT_FALSE(spikes.is_spike(1, bad)) << "it is skipped for another reason";
  }
  EXPECT_EQ(spikes, window(64));
}

TEST(SpikeWindow, AcceptsALastingChangeOfLevel) {
  SpikeWindow spikes = window(128);
  int skipped = 0;
  for (int i = 0; i < 20; ++i) {
    skipped += spikes.is_spike(1000, 2) ? 1 : 0;
    spikes.add(1000, 2);
  }
  EXPECT_EQ(skipped, 4) << "with k of 128 at the new level, 128 - k <= 6 sqrt(k (128 - k) 128 / 127) from k = 4 on";
}

TEST(SpikeWindow, OfEqualValuesIsExceededByAnyHigherOne) {
  SpikeWindow spikes;
  for (int i = 0; i < 100; ++i) spikes.add(0.1, 0.3);
  EXPECT_EQ(spikes.score(0.1, 0.3), 0);
  EXPECT_FALSE(spikes.is_spike(0.1, 0.3));
  EXPECT_TRUE(spikes.is_spike(0.2, 0.3));
  EXPECT_FALSE(spikes.is_spike(0.05, 0.3));
}

}  // namespace
}  // namespace trireme::optimizer::spikes_test

// Fault, numerics: a step's loss or gradient norm is a spike, with `train.skip_spikes` -> skipped on all ranks; the
//   weights have the bits of a run without its update
