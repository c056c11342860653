// SPDX-License-Identifier: Apache-2.0
#include "huggingface/half.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

namespace trireme::huggingface {
namespace {

constexpr std::uint32_t words = 1 << 16;

/// Half precision by its definition.
float slow_fp16(std::uint16_t word) {
  const int exponent = word >> 10 & 31;
  const int fraction = word & 1023;
  const double sign = (word & 0x8000) != 0 ? -1 : 1;
  if (exponent == 31 && fraction != 0) return std::numeric_limits<float>::quiet_NaN();
  if (exponent == 31) return static_cast<float>(sign * std::numeric_limits<double>::infinity());
  if (exponent == 0) return static_cast<float>(sign * std::ldexp(fraction, -24));
  return static_cast<float>(sign * std::ldexp(1024 + fraction, exponent - 25));
}

TEST(Fp16, ConvertsEveryWordExactly) {
  for (std::uint32_t w = 0; w < words; ++w) {
    const auto word = static_cast<std::uint16_t>(w);
    const float slow = slow_fp16(word);
    if (std::isnan(slow)) {
      ASSERT_TRUE(std::isnan(fp16_to_float(word))) << w;
    } else {
      ASSERT_EQ(std::bit_cast<std::uint32_t>(fp16_to_float(word)), std::bit_cast<std::uint32_t>(slow)) << w;
    }
  }
}

TEST(E4m3, ConvertsEveryByteExactly) {
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    const int exponent = static_cast<int>(byte >> 3 & 15U), fraction = static_cast<int>(byte & 7U);
    const double sign = (byte & 128U) != 0 ? -1 : 1;
    const float value = e4m3_to_float(static_cast<std::uint8_t>(byte));
    if (exponent == 15 && fraction == 7)
      ASSERT_TRUE(std::isnan(value)) << byte;
    else
      ASSERT_EQ(value, sign * (exponent == 0 ? std::ldexp(fraction, -9) : std::ldexp(8 + fraction, exponent - 10)))
          << byte;
  }
  EXPECT_EQ(e4m3_to_float(0x7e), 448);
}

TEST(Bf16, ComesBackFromFloatForEveryWord) {
  for (std::uint32_t w = 0; w < words; ++w) {
    const auto word = static_cast<std::uint16_t>(w);
    if (std::isnan(bf16_to_float(word))) {
      ASSERT_TRUE(std::isnan(bf16_to_float(float_to_bf16(bf16_to_float(word))))) << w;
    } else {
      ASSERT_EQ(float_to_bf16(bf16_to_float(word)), word) << w;
    }
  }
}

TEST(Bf16, RoundsTiesToEven) {
  EXPECT_EQ(float_to_bf16(std::bit_cast<float>(0x3f808000U)), 0x3f80);
  EXPECT_EQ(float_to_bf16(std::bit_cast<float>(0x3f818000U)), 0x3f82);
  EXPECT_EQ(float_to_bf16(std::bit_cast<float>(0x3f808001U)), 0x3f81);
  EXPECT_EQ(float_to_bf16(std::bit_cast<float>(0x3f80ffffU)), 0x3f81);
  EXPECT_EQ(float_to_bf16(std::numeric_limits<float>::max()), 0x7f80) << "rounds to infinity";
}

TEST(Bf16, IsTheNearestWord) {
  std::mt19937 random(7);
  std::uniform_real_distribution<float> exponents(-120, 120);
  for (int i = 0; i < 20000; ++i) {
    const float value = (i % 2 == 0 ? 1.F : -1.F) * std::exp2(exponents(random));
    const auto word = float_to_bf16(value);
    const float error = std::fabs(bf16_to_float(word) - value);
    for (const int step : {-1, 1}) {
      ASSERT_LE(error, std::fabs(bf16_to_float(static_cast<std::uint16_t>(word + step)) - value)) << value;
    }
  }
}

TEST(Bf16, KeepsEveryNanANan) {
  for (const std::uint32_t bits : {0x7f800001U, 0x7fc00000U, 0xff800001U, 0x7fffffffU, 0xffffffffU}) {
    EXPECT_TRUE(std::isnan(bf16_to_float(float_to_bf16(std::bit_cast<float>(bits)))));
  }
}

}  // namespace
}  // namespace trireme::huggingface
