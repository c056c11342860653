// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cstdint>
#include <limits>

#include "trireme/base/fp8.hpp"

/// The element types of fp8 products and their scales, the same on the host and on a device.
namespace trireme::kernels {

/// e4m3: 4 significant bits, at most 448, no infinity. e5m2: 3 significant bits, at most 57344.
enum class Fp8Type : std::uint8_t { e4m3, e5m2 };

struct Fp8Format {
  int mantissa_bits;
  int least_exponent;    ///< of a normal value
  int largest_exponent;  ///< the largest value is 1.75 times this power of two
};
[[nodiscard]] constexpr Fp8Format fp8_format(Fp8Type type) {
  return type == Fp8Type::e4m3 ? Fp8Format{.mantissa_bits = 3, .least_exponent = -6, .largest_exponent = 8}
                               : Fp8Format{.mantissa_bits = 2, .least_exponent = -14, .largest_exponent = 15};
}

/// Type of the gradients of outputs, whose range is wider than that of values: e5m2 with one scale for all.
[[nodiscard]] constexpr Fp8Type fp8_gradient_type(Fp8 recipe) {
  return recipe == Fp8::tensorwise ? Fp8Type::e5m2 : Fp8Type::e4m3;
}

/// The compute capability that such products need where one of `major`.`minor` is too low; null if it is not.
[[nodiscard]] constexpr const char* missing_fp8_capability(Fp8 recipe, int major, int minor) {
  if (recipe == Fp8::mx && major < 10) return "10.0 (Blackwell)";
  if (recipe != Fp8::none && major * 10 + minor < 89) return "8.9 (Ada, Hopper)";
  return nullptr;
}

/// Elements along the summed dimension that share a scale of recipe mx.
inline constexpr std::int64_t mx_block = 32;

/// |x| as bits: in this order NaN is beyond infinity, and infinity beyond all else.
[[nodiscard]] constexpr std::uint32_t magnitude_bits(float x) { return std::bit_cast<std::uint32_t>(x) & 0x7fffffffU; }

/// 2^exponent; exponent: of a normal number.
[[nodiscard]] constexpr float power_of_two(int exponent) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(exponent + 127) << 23);
}

/// The biased exponent of the scale for elements of which the largest has these bits without its sign: the byte of an
/// e8m0 scale. The least with which nothing is beyond the type's largest value, at least 1, so that both the scale and
/// its inverse are normal numbers; 255, which is NaN, where the largest is infinite or NaN.
[[nodiscard]] constexpr std::uint32_t fp8_scale_byte(std::uint32_t largest, Fp8Type type) {
  const auto exponent = static_cast<int>(largest >> 23);
  if (exponent == 255) return 255;
  constexpr std::uint32_t mantissa = 0x7fffffU, three_quarters = 0x600000U;
  const int byte = exponent - fp8_format(type).largest_exponent + ((largest & mantissa) > three_quarters ? 1 : 0);
  return static_cast<std::uint32_t>(byte < 1 ? 1 : byte);
}
[[nodiscard]] constexpr float fp8_scale(std::uint32_t byte) {
  return byte == 255 ? std::numeric_limits<float>::quiet_NaN() : std::bit_cast<float>(byte << 23);
}

}  // namespace trireme::kernels
