// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cstdint>

/// An fp32 number as the nearest bf16 number, ties away from zero, and its own lower 16 bits: the same on the host and
/// on a device.
namespace trireme::split {

/// NaN becomes one NaN.
[[gnu::always_inline]] constexpr std::uint16_t gathered_bits(float x) {
  const std::uint32_t rounded = (std::bit_cast<std::uint32_t>(x) + 0x8000U) >> 16;
  return static_cast<std::uint16_t>(x == x ? rounded : 0x7fc0U);
}
/// Negative where x was rounded away from zero.
[[gnu::always_inline]] constexpr std::int16_t remainder_bits(float x) {
  return static_cast<std::int16_t>(x == x ? std::bit_cast<std::uint32_t>(x) & 0xffffU : 0U);
}
[[gnu::always_inline]] constexpr float joined(std::uint16_t gathered, std::int16_t remainder) {
  return std::bit_cast<float>((std::uint32_t{gathered} << 16) +
                              static_cast<std::uint32_t>(static_cast<std::int32_t>(remainder)));
}

}  // namespace trireme::split
