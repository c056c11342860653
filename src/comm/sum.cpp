// SPDX-License-Identifier: Apache-2.0
#include "comm/sum.hpp"

#include <algorithm>
#include <array>
#include <bit>

#include "trireme/base/streaming.hpp"

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
// Longer outputs leave the caches before they are read: they are written by non-temporal stores.
constexpr std::int64_t short_enough = 1 << 16;

/// Calls element(i) for i < n, and prefetches ahead in each
/// of `streams` (the CPU prefetches within a page only).
template <class Element, class... Term>
[[gnu::always_inline]] inline void for_each_element(std::int64_t n, const Element& element, const Term*... streams) {
  constexpr std::int64_t group = 32;
  std::int64_t i = 0;
  for (; i + group <= n; i += group) {
    (prefetch<group, false>(streams + i), ...);
    for (std::int64_t j = i; j < i + group; ++j) element(j);
  }
  for (; i < n; ++i) element(i);
}

/// sum[i] = terms[0][first + i] + terms[1][first + i] + ..., for i < n.
template <class Term>
void add_up(std::span<const Term* const> terms, std::int64_t first, std::int64_t n, float* __restrict__ sum) {
  const Term* __restrict__ one = terms[0] + first;
  if (terms.size() == 1)
    return for_each_element(
        n, [=](std::int64_t i) { sum[i] = value(one[i]); }, one);
  const Term* __restrict__ other = terms[1] + first;
  for_each_element(
      n, [=](std::int64_t i) { sum[i] = value(one[i]) + value(other[i]); }, one, other);
  for (const Term* const start : terms.subspan(2)) {
    const Term* __restrict__ term = start + first;
    for_each_element(
        n, [=](std::int64_t i) { sum[i] += value(term[i]); }, term);
  }
}

template <class Term>
void sum_blocks(std::span<const Term* const> terms, float* out, std::int64_t count, bool accumulate) {
  constexpr std::int64_t line = cache_line / sizeof(float);
  const bool streams = !accumulate && count > short_enough && to_next_line(out) == 0;
  alignas(cache_line) std::array<float, block> sums;
  for (std::int64_t first = 0; first < count; first += block) {
    const std::int64_t n = std::min(block, count - first);
    float* __restrict__ sum = sums.data();
    add_up(terms, first, n, sum);
    float* __restrict__ to = out + first;
    std::int64_t i = 0;
    if (streams)
      for (; i + line <= n; i += line) stream_line(sum + i, to + i);
    if (accumulate)
      for (; i < n; ++i) to[i] += sum[i];
    else
      for (; i < n; ++i) to[i] = sum[i];
  }
  if (streams) end_of_stream();
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
