// SPDX-License-Identifier: Apache-2.0
#include "trireme/base/philox.hpp"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <set>
#include <span>
#include <vector>

namespace trireme {
namespace {

using Words = std::array<std::uint32_t, 4>;

// kat_vectors of Random123 (philox4x32, 10 rounds).
TEST(Philox, GivesTheKnownAnswersOfRandom123) {
  EXPECT_EQ(philox4x32(0, 0, 0), (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox4x32(~0ULL, ~0ULL, ~0ULL), (Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox4x32(0x299f31d0a4093822ULL, 0x85a308d3243f6a88ULL, 0x0370734413198a2eULL),
            (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Philox, StreamsDifferBySeedAndName) {
  std::set<std::uint64_t> keys;
  for (std::uint64_t seed = 0; seed < 100; ++seed)
    for (const char* name : {"model.embed_tokens.weight", "model.norm.weight", "data", ""})
      keys.insert(stream_key(seed, name));
  EXPECT_EQ(keys.size(), 400U);
  EXPECT_EQ(stream_key(1234, "data"), stream_key(1234, "data"));
}

TEST(NormalAt, HasTheMomentsOfAStandardNormal) {
  const std::uint64_t key = stream_key(1234, "moments");
  constexpr int count = 1'000'000;
  double sum = 0;
  double squares = 0;
  double fourths = 0;
  double neighbours = 0;
  double previous = 0;
  int beyond_three = 0;
  for (int i = 0; i < count; ++i) {
    const double x = normal_at(key, static_cast<std::uint64_t>(i));
    ASSERT_TRUE(std::isfinite(x));
    sum += x;
    squares += x * x;
    fourths += x * x * x * x;
    neighbours += x * previous;
    previous = x;
    beyond_three += std::abs(x) > 3 ? 1 : 0;
  }
  EXPECT_NEAR(sum / count, 0, 4e-3);
  EXPECT_NEAR(squares / count, 1, 6e-3);
  EXPECT_NEAR(fourths / count, 3, 5e-2);
  EXPECT_NEAR(neighbours / count, 0, 4e-3);
  EXPECT_NEAR(beyond_three, 2700, 260);
}

TEST(NormalAt, DependsOnKeyAndElementOnly) {
  const std::uint64_t key = stream_key(7, "x");
  const double late = normal_at(key, 1'000'003);
  (void)normal_at(key, 5);
  EXPECT_EQ(normal_at(key, 1'000'003), late);
  EXPECT_NE(normal_at(key, 1'000'002), late);
  EXPECT_NE(normal_at(stream_key(8, "x"), 1'000'003), late);
}

/// Elements [first, first + count) by `fill` and one by one differ in no bit.
void expect_normal_at(decltype(&fill_normal) fill, std::uint64_t key, std::uint64_t first, double std,
                      std::size_t count) {
  std::vector<float> values(count + 1, 7.0F);
  fill(key, first, std, std::span(values).first(count));
  EXPECT_EQ(values[count], 7.0F) << "nothing is written behind the last element";
  for (std::size_t i = 0; i < count; ++i)
    ASSERT_EQ(std::bit_cast<std::uint32_t>(values[i]),
              std::bit_cast<std::uint32_t>(static_cast<float>(std * normal_at(key, first + i))))
        << "element " << first << " + " << i << ", standard deviation " << std;
}

TEST(FillNormal, HasTheBitsOfNormalAt) {
  for (const auto fill : {fill_normal, fill_normal_portable}) {
    // About one in 130,000 values is too near the middle of two fp32 numbers for the approximation.
    expect_normal_at(fill, stream_key(1234, "model.layers.0.mlp.up_proj.weight"), 0, 0.02, 2'000'000);
    // Wherever a run begins and ends, and where the counter's low word overflows.
    for (const std::uint64_t first : {0ULL, 1ULL, 511ULL, (1ULL << 33) - 700, (1ULL << 40) - 3})
      for (const std::size_t count : {0UL, 1UL, 2UL, 3UL, 511UL, 512UL, 513UL, 1025UL, 2048UL})
        expect_normal_at(fill, stream_key(7, "runs"), first, 0.006, count);
    // Numbers that are not normal in fp32, that overflow, and zeros of both signs.
    for (const double std : {0.0, 1e-300, 1e-44, 1e-38, 1.0, 1e38, 1e300})
      expect_normal_at(fill, stream_key(9, "scales"), 1, std, 5'000);
    // Found by comparing 1.6e9 values with the approximation alone: one that rounds otherwise, and three close to a
    // zero of sine or cosine.
    for (const std::uint64_t element : {1154128344ULL, 376447422ULL, 1016271335ULL, 389342ULL})
      expect_normal_at(fill, stream_key(1234, "hard"), element - 10, 0.02, 20);
    // The same of subnormal numbers, which are further apart.
    expect_normal_at(fill, stream_key(1234, "subnormal"), 873623205 - 10, 6e-39, 20);
  }
}

TEST(UniformAt, FillsTheUnitInterval) {
  const std::uint64_t key = stream_key(1234, "uniform");
  constexpr int count = 200'000;
  double sum = 0;
  for (int i = 0; i < count; ++i) {
    const double x = uniform_at(key, static_cast<std::uint64_t>(i));
    ASSERT_GE(x, 0.0);
    ASSERT_LT(x, 1.0);
    sum += x;
  }
  EXPECT_NEAR(sum / count, 0.5, 3e-3);
}

}  // namespace
}  // namespace trireme
