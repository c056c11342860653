// SPDX-License-Identifier: Apache-2.0
#include "data/permutation.hpp"

#include <cmath>

#include "trireme/base/error.hpp"
#include "trireme/base/philox.hpp"

namespace trireme::data {
namespace {

constexpr std::uint64_t rounds = 6;

/// The smallest s with s * s >= count.
std::uint64_t square_side(std::uint64_t count) {
  auto side = static_cast<std::uint64_t>(std::sqrt(static_cast<double>(count)));
  while (side * side < count) ++side;
  while (side > 1 && (side - 1) * (side - 1) >= count) --side;
  return side;
}

std::uint64_t round_value(std::uint64_t key, std::uint64_t epoch, std::uint64_t round, std::uint64_t half) {
  const auto words = philox4x32(key, half, epoch * rounds + round);
  return (static_cast<std::uint64_t>(words[1]) << 32) | words[0];
}

/// A bijection of [0, side * side).
std::uint64_t feistel(std::uint64_t key, std::uint64_t epoch, std::uint64_t value, std::uint64_t side) {
  std::uint64_t left = value / side;
  std::uint64_t right = value % side;
  for (std::uint64_t round = 0; round < rounds; ++round) {
    const std::uint64_t mixed = (left + round_value(key, epoch, round, right) % side) % side;
    left = right;
    right = mixed;
  }
  return left * side + right;
}

}  // namespace

std::int64_t permuted(std::uint64_t key, std::int64_t epoch, std::int64_t position, std::int64_t count) {
  invariant(position >= 0 && position < count && epoch >= 0, "a position lies within its permutation");
  const auto size = static_cast<std::uint64_t>(count);
  const std::uint64_t side = square_side(size);
  auto value = static_cast<std::uint64_t>(position);
  do {
    value = feistel(key, static_cast<std::uint64_t>(epoch), value, side);
  } while (value >= size);
  return static_cast<std::int64_t>(value);
}

}  // namespace trireme::data
