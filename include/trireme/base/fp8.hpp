// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace trireme {

/// Rounding of the operands of matrix products before they are multiplied: 8 bits, with a scale for each row,
/// for each 32 elements (MX), or for all of an operand.
enum class Fp8 : std::uint8_t { none, rowwise, mx, tensorwise };

/// Alignment of weight sizes in fp8 products.
[[nodiscard]] constexpr std::int64_t fp8_multiple(Fp8 recipe) { return recipe == Fp8::mx ? 32 : 16; }

}  // namespace trireme
