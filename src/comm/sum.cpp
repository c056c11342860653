// SPDX-License-Identifier: Apache-2.0
#include "comm/sum.hpp"

#include <algorithm>
#include <array>
#include <bit>

namespace trireme::comm {
namespace {

inline Bf16 rounded(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t nearest_even = (bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16;
  const bool nan = (bits & 0x7fffffffU) > 0x7f800000U;
  return static_cast<Bf16>(nan ? (bits >> 16) | 0x40U : nearest_even);
}

inline float value(float term) { return term; }
inline float value(Bf16 term) { return std::bit_cast<float>(static_cast<std::uint32_t>(term) << 16); }

// The partial sums of a block stay in the first-level cache while the terms stream by once.
constexpr std::int64_t block = 2048;

template <class Term>
void sum_blocks(std::span<const Term* const> terms, float* out, std::int64_t count, bool accumulate) {
  alignas(64) std::array<float, block> sums;
  for (std::int64_t first = 0; first < count; first += block) {
    const std::int64_t n = std::min(block, count - first);
    float* __restrict__ sum = sums.data();
    const Term* __restrict__ start = terms[0] + first;
    for (std::int64_t i = 0; i < n; ++i) sum[i] = value(start[i]);
    for (const Term* const whole : terms.subspan(1)) {
      const Term* __restrict__ term = whole + first;
      for (std::int64_t i = 0; i < n; ++i) sum[i] += value(term[i]);
    }
    float* __restrict__ to = out + first;
    if (accumulate)
      for (std::int64_t i = 0; i < n; ++i) to[i] += sum[i];
    else
      for (std::int64_t i = 0; i < n; ++i) to[i] = sum[i];
  }
}

}  // namespace

void round_to_bf16(const float* from, Bf16* to, std::int64_t count) {
  const float* __restrict__ in = from;
  Bf16* __restrict__ out = to;
  for (std::int64_t i = 0; i < count; ++i) out[i] = rounded(in[i]);
}

void widen(const Bf16* from, float* to, std::int64_t count) {
  const Bf16* __restrict__ in = from;
  float* __restrict__ out = to;
  for (std::int64_t i = 0; i < count; ++i) out[i] = value(in[i]);
}

void sum_terms(std::span<const float* const> terms, float* out, std::int64_t count, bool accumulate) {
  sum_blocks(terms, out, count, accumulate);
}

void sum_terms(std::span<const Bf16* const> terms, float* out, std::int64_t count, bool accumulate) {
  sum_blocks(terms, out, count, accumulate);
}

}  // namespace trireme::comm
