// SPDX-License-Identifier: Apache-2.0
#include "trireme/base/philox.hpp"

#include <cmath>
#include <numbers>

#include "base/philox_rounds.hpp"
#include "trireme/base/hash.hpp"

namespace trireme {

namespace {

/// 53 random bits as a number in [0, 1).
double unit_interval(std::uint32_t high, std::uint32_t low) {
  const std::uint64_t bits = (std::uint64_t{high} << 32) | low;
  return static_cast<double>(bits >> 11) * 0x1p-53;
}

}  // namespace

std::array<std::uint32_t, 4> philox4x32(std::uint64_t key, std::uint64_t counter_low, std::uint64_t counter_high) {
  return philox4x32_rounds(key, counter_low, counter_high);
}

std::uint64_t stream_key(std::uint64_t seed, std::string_view name) {
  const auto words = philox4x32(seed, fnv1a(name));
  return (std::uint64_t{words[0]} << 32) | words[1];
}

double normal_at(std::uint64_t key, std::uint64_t element) {
  // One Philox call carries the 106 bits of a Box-Muller pair: even elements take the cosine, odd ones the sine.
  const auto words = philox4x32(key, element / 2, 1);
  const double radius = std::sqrt(-2.0 * std::log(1.0 - unit_interval(words[0], words[1])));
  const double angle = 2.0 * std::numbers::pi * unit_interval(words[2], words[3]);
  return radius * (element % 2 == 0 ? std::cos(angle) : std::sin(angle));
}

double uniform_at(std::uint64_t key, std::uint64_t element) {
  const auto words = philox4x32(key, element / 2, 0);
  return element % 2 == 0 ? unit_interval(words[0], words[1]) : unit_interval(words[2], words[3]);
}

}  // namespace trireme
