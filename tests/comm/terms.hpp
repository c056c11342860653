// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <vector>

#include "trireme/base/units.hpp"

/// Numbers that every rank can compute for every other: so the exact result of a reduction is known everywhere.
namespace trireme::comm::test {

/// Spread over many magnitudes, so that another order of a sum gives other bits.
inline float term(int rank, std::int64_t i) {
  std::uint64_t x = static_cast<std::uint64_t>(rank + 1) * 0x9e3779b97f4a7c15ULL +
                    static_cast<std::uint64_t>(i) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 31)) * 0x94d049bb133111ebULL;
  x ^= x >> 29;
  const double uniform = static_cast<double>(x >> 11) * 0x1p-53 - 0.5;
  return static_cast<float>(std::ldexp(uniform, static_cast<int>(x % 17) - 8));
}

inline std::vector<float> terms(int rank, std::int64_t count) {
  std::vector<float> values(static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < count; ++i) values[static_cast<std::size_t>(i)] = term(rank, i);
  return values;
}

/// The plain definition: the nearest of the two bf16 neighbours, the even one when both are as near.
inline float rounded_to_bf16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t below = bits & 0xffff0000U;
  const std::uint32_t rest = bits & 0xffffU;
  const bool up = rest > 0x8000U || (rest == 0x8000U && (below & 0x10000U) != 0);
  return std::bit_cast<float>(up ? below + 0x10000U : below);
}

/// The sum of all ranks' terms in rank order, as the contract requires.
inline float ordered_sum(int ranks, std::int64_t i, DType wire) {
  const auto sent = [&](int rank) {
    return wire == DType::bf16 && ranks > 1 ? rounded_to_bf16(term(rank, i)) : term(rank, i);
  };
  float sum = sent(0);
  for (int rank = 1; rank < ranks; ++rank) sum += sent(rank);
  return sum;
}

}  // namespace trireme::comm::test
