// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cstdint>
#include <span>

/// The floating-point words of 16 and 8 bits of weight files.
namespace trireme::huggingface {

/// The value of a bfloat16 word; exact.
[[nodiscard]] constexpr float bf16_to_float(std::uint16_t word) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(word) << 16);
}

/// The bfloat16 word nearest to `value`, ties to even; a NaN stays a (quiet) NaN.
[[nodiscard]] constexpr std::uint16_t float_to_bf16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7fffffffU) > 0x7f800000U) return static_cast<std::uint16_t>((bits >> 16) | 0x40U);
  return static_cast<std::uint16_t>((bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16);
}

/// The value of an IEEE 754 half-precision word, subnormal numbers included; exact.
[[nodiscard]] constexpr float fp16_to_float(std::uint16_t word) {
  const std::uint32_t sign = (word & 0x8000U) << 16;
  const std::uint32_t exponent = (word >> 10) & 0x1fU;
  const std::uint32_t fraction = word & 0x3ffU;
  if (exponent == 0) {
    const float magnitude = static_cast<float>(fraction) * 0x1p-24F;
    return std::bit_cast<float>(std::bit_cast<std::uint32_t>(magnitude) | sign);
  }
  const std::uint32_t wide = exponent == 0x1fU ? 0xffU : exponent + 112U;
  return std::bit_cast<float>(sign | wide << 23 | fraction << 13);
}

/// The value of an e4m3 byte (OCP 8-bit floating point 2023): no infinities, NaN for all ones; exact.
[[nodiscard]] constexpr float e4m3_to_float(std::uint8_t byte) {
  const std::uint32_t sign = (byte & 0x80U) << 24, exponent = (byte >> 3) & 0xfU, fraction = byte & 0x7U;
  if (exponent == 0) {
    const float magnitude = static_cast<float>(fraction) * 0x1p-9F;
    return std::bit_cast<float>(std::bit_cast<std::uint32_t>(magnitude) | sign);
  }
  if (exponent == 0xfU && fraction == 0x7U) return std::bit_cast<float>(sign | 0x7fc00000U);
  return std::bit_cast<float>(sign | (exponent + 120U) << 23 | fraction << 20);
}

}  // namespace trireme::huggingface
