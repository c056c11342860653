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
// What is longer leaves the caches before anybody reads it.
constexpr std::int64_t short_enough = 1 << 16;

template <class Term>
void ask_for(const Term* at) {
  __builtin_prefetch(at);
  if constexpr (sizeof(Term) == 4) __builtin_prefetch(at + 16);
}

/// The sums of a block. Each term's next block is asked for: the CPU looks ahead within a page only.
template <class Term>
void add_up(std::span<const Term* const> terms, std::int64_t first, std::int64_t n, float* __restrict__ sum) {
  constexpr std::int64_t group = 32;
  const Term* __restrict__ one = terms[0] + first;
  const Term* __restrict__ other = (terms.size() > 1 ? terms[1] : terms[0]) + first;
  const std::int64_t whole = terms.size() > 1 ? n / group * group : 0;
  for (std::int64_t i = 0; i < whole; i += group) {
    ask_for(one + i + block);
    ask_for(other + i + block);
    for (std::int64_t j = i; j < i + group; ++j) sum[j] = value(one[j]) + value(other[j]);
  }
  if (terms.size() == 1) {
    for (std::int64_t i = 0; i < n; ++i) sum[i] = value(one[i]);
    return;
  }
  for (std::int64_t i = whole; i < n; ++i) sum[i] = value(one[i]) + value(other[i]);
  for (const Term* const start : terms.subspan(2)) {
    const Term* __restrict__ term = start + first;
    for (std::int64_t i = 0; i < whole; i += group) {
      ask_for(term + i + block);
      for (std::int64_t j = i; j < i + group; ++j) sum[j] += value(term[j]);
    }
    for (std::int64_t i = whole; i < n; ++i) sum[i] += value(term[i]);
  }
}

template <class Term>
void sum_blocks(std::span<const Term* const> terms, float* out, std::int64_t count, bool accumulate) {
  constexpr std::int64_t line = cache_line / sizeof(float);
  const bool past_caches = !accumulate && count > short_enough && to_next_line(out) == 0;
  alignas(cache_line) std::array<float, block> sums;
  for (std::int64_t first = 0; first < count; first += block) {
    const std::int64_t n = std::min(block, count - first);
    float* __restrict__ sum = sums.data();
    add_up(terms, first, n, sum);
    float* __restrict__ to = out + first;
    std::int64_t i = 0;
    if (past_caches)
      for (; i + line <= n; i += line) stream_line(sum + i, to + i);
    if (accumulate)
      for (; i < n; ++i) to[i] += sum[i];
    else
      for (; i < n; ++i) to[i] = sum[i];
  }
  if (past_caches) end_of_stream();
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
