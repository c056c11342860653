// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstring>
#include <type_traits>

#include "kernels/simd/block_product.hpp"
#include "kernels/simd/lanes.hpp"

/// Operands of block_product: floats or, where the CPU multiplies them, pairs of bf16. Either take 4 bytes.
namespace trireme::kernels {

static_assert(sizeof(Pair) == sizeof(float));

/// Number of elements for n neighbours along k.
template <class Element>
std::int64_t terms_of(std::int64_t n) {
  return std::is_same_v<Element, Pair> ? (n + 1) / 2 : n;
}

/// to[i] = (even[i], odd[i]).
inline void interleave(const c10::BFloat16* even, const c10::BFloat16* odd, Pair* to, std::int64_t n) {
  std::int64_t i = 0;
  for (; i + 8 <= n; i += 8) {
    EightHalves low, high;
    std::memcpy(&low, even + i, sizeof low);
    std::memcpy(&high, odd + i, sizeof high);
    const EightBits words = __builtin_convertvector(low, EightBits) | (__builtin_convertvector(high, EightBits) << 16);
    std::memcpy(static_cast<void*>(to + i), &words, sizeof words);
  }
  for (; i < n; ++i) to[i] = {.even = even[i], .odd = odd[i]};
}

/// The same with zeros for `odd`.
inline void interleave_zeros(const c10::BFloat16* even, Pair* to, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) to[i] = {.even = even[i], .odd = c10::BFloat16(0.0F)};
}

}  // namespace trireme::kernels
