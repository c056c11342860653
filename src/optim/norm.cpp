// SPDX-License-Identifier: Apache-2.0
#include "trireme/optim/norm.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <vector>

#include "optim/team_space.hpp"
#include "trireme/base/streaming.hpp"

namespace trireme::optim {
namespace {

/// Sums squares in 32 lanes, in an order that depends on `elements` only: four strands of eight lanes, because a single
/// stream does not saturate the memory bus. The square of an fp32 number is exact in fp64, so the results are bitwise
/// equal in every build and on every CPU.
double squares(const float* values, std::int64_t elements) {
  constexpr std::int64_t strands = 4, lanes = 8, group = 16;
  const std::int64_t strand = elements / (strands * group) * group;
  std::array<double, strands * lanes> sums{};
  const auto add = [&](std::int64_t sum, float value) {
    sums[sum] = std::fma(double{value}, double{value}, sums[sum]);
  };
  for (std::int64_t i = 0; i < strand; i += group) {
    for (std::int64_t s = 0; s < strands; ++s) prefetch<group, false>(values + s * strand + i);
    for (std::int64_t j = i; j < i + group; j += lanes) {
      for (std::int64_t s = 0; s < strands; ++s) {
        for (std::int64_t lane = 0; lane < lanes; ++lane) add(s * lanes + lane, values[s * strand + j + lane]);
      }
    }
  }
  for (std::int64_t i = strands * strand; i < elements; ++i) add(i % lanes, values[i]);
  double total = 0;
  for (const double sum : sums) total += sum;
  return total;
}

}  // namespace

double sum_of_squares(std::span<const float> values, const Team& team) {
  constexpr std::int64_t chunk = std::int64_t{1} << 16;
  const auto elements = static_cast<std::int64_t>(values.size());
  std::vector<double> partial(static_cast<std::size_t>((elements + chunk - 1) / chunk));
  const auto run_chunk = [&](std::int64_t index) {
    const std::int64_t begin = index * chunk;
    partial[static_cast<std::size_t>(index)] = squares(values.data() + begin, std::min(chunk, elements - begin));
  };
  parallel(team, static_cast<std::int64_t>(partial.size()), run_chunk);
  double total = 0;
  for (const double sum : partial) total += sum;
  return total;
}

double clip_factor(double norm, double clip) { return clip == 0 ? 1.0 : std::min(1.0, clip / (norm + 1e-6)); }

}  // namespace trireme::optim
