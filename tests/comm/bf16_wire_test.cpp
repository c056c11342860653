// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "support/test_transports.hpp"
#include "terms.hpp"
#include "trireme/comm/collectives.hpp"

// The arithmetic is private to the layer; the recording fake shows it without MPI.
namespace trireme::comm {
namespace {

// Half the sum of two equal values over a bf16 wire: twice the rounded value, which is exact.
float half_of_bf16_sum(float value) {
  Collectives two(std::make_unique<RecordingTransport>(0, 2), "shard", "shard/reduce", {});
  const float whole[] = {value, value};
  float shard = 0;
  two.reduce_scatter(whole, &shard, 1, DType::bf16, false);
  return shard / 2;
}

TEST(Bf16Wire, RoundsToNearestEven) {
  EXPECT_EQ(half_of_bf16_sum(1.0F), 1.0F);
  EXPECT_EQ(half_of_bf16_sum(0x1.008p0F), 0x1.00p0F) << "just below half a unit in the last place";
  EXPECT_EQ(half_of_bf16_sum(0x1.01p0F), 0x1.00p0F) << "a tie goes to the even neighbour below";
  EXPECT_EQ(half_of_bf16_sum(0x1.03p0F), 0x1.04p0F) << "a tie goes to the even neighbour above";
  EXPECT_EQ(half_of_bf16_sum(0x1.0101p0F), 0x1.02p0F) << "beyond the tie";
  EXPECT_EQ(half_of_bf16_sum(-0x1.03p0F), -0x1.04p0F);
  for (std::int64_t i = 0; i < 10'000; ++i)
    EXPECT_EQ(half_of_bf16_sum(test::term(3, i)), test::rounded_to_bf16(test::term(3, i)));
}

TEST(Bf16Wire, KeepsInfinitiesAndNaNs) {
  EXPECT_EQ(half_of_bf16_sum(std::numeric_limits<float>::infinity()), std::numeric_limits<float>::infinity());
  EXPECT_EQ(half_of_bf16_sum(std::numeric_limits<float>::max()), std::numeric_limits<float>::infinity());
  EXPECT_TRUE(std::isnan(half_of_bf16_sum(std::numeric_limits<float>::quiet_NaN())));
  // All of this NaN's payload lies in the bits that bf16 drops.
  EXPECT_TRUE(std::isnan(half_of_bf16_sum(std::bit_cast<float>(0x7f800001U))));
}

}  // namespace
}  // namespace trireme::comm
