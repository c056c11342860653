// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <bit>
#include <cstdint>

#include "base/philox_rounds.hpp"

/// Stochastic rounding of moments to bf16. The same bits on the host, on a device and on every mesh: random words
/// depend on the parameter, the element of the whole parameter and the number of the update.
namespace trireme::optim {

/// One of the two bf16 numbers around x: the one further from zero with a probability of x's distance to the other, in
/// units of their distance, so that the mean is x. random: uniform in [0, 2^16). NaN becomes one NaN.
[[gnu::always_inline]] constexpr std::uint16_t stochastic_bits(float x, std::uint32_t random) {
  const std::uint32_t rounded = (std::bit_cast<std::uint32_t>(x) + random) >> 16;
  return static_cast<std::uint16_t>(x == x ? rounded : 0x7fc0U);
}

/// Random words of elements 4 * `four` to 4 * `four` + 3 in update `count`. The lower half of a word rounds the first
/// moment, the upper half the second.
[[gnu::always_inline]] constexpr std::array<std::uint32_t, 4> rounding_words(std::uint64_t key, std::int64_t four,
                                                                             std::int64_t count) {
  return philox4x32_rounds(key, static_cast<std::uint64_t>(four), static_cast<std::uint64_t>(count));
}

}  // namespace trireme::optim
