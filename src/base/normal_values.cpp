// SPDX-License-Identifier: Apache-2.0
//
// `normal_at` for many elements. Results are stored in fp32, so an approximation in fp64 gives the same bits as libm's
// log, sin and cos unless it is close to the middle between two fp32 numbers; such elements are computed by `normal_at`
// (the rounding test of Ziv, "Fast evaluation of elementary mathematical functions with correctly rounded last bit",
// 1991). Plain loops over a few hundred elements, which GCC vectorises.
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <numbers>

#include "base/philox_rounds.hpp"
#include "trireme/base/philox.hpp"

namespace trireme {

namespace {

constexpr std::size_t pairs_at_once = 256;
using Words = std::array<std::uint32_t, pairs_at_once>;
using Doubles = std::array<double, pairs_at_once>;
using Values = std::array<double, 2 * pairs_at_once>;

/// The approximation is within 2^-47 of the exact value, relative to it, and `normal_at` with a libm whose log, sin and
/// cos are within 4 ulp within 2^-49. `margin`, in ulps of fp64, is at least 2^-42.
constexpr std::int64_t margin = std::int64_t{1} << 11;

/// Whether a number within `margin` of `value` may round to another fp32 than `value`: near the middle of two, or
/// below the normal fp32 numbers.
[[gnu::always_inline]] inline bool may_round_otherwise(double value) {
  constexpr std::int64_t ulps_of_fp32 = std::int64_t{1} << 29, middle = ulps_of_fp32 / 2;
  const auto bits = std::bit_cast<std::int64_t>(value);
  const std::int64_t exponent = (bits >> 52) & 0x7ff;
  const std::int64_t above = (bits - (middle - margin)) & (ulps_of_fp32 - 1);
  return (above < 2 * margin) | (exponent <= 1023 - 126);
}

/// An integer below 2^52 as a double, without the instruction that AVX2 has not.
[[gnu::always_inline]] inline double to_double(std::uint64_t integer) {
  return std::bit_cast<double>(std::bit_cast<std::uint64_t>(0x1p52) | integer) - 0x1p52;
}

/// `unit_interval` of philox.cpp, exactly.
[[gnu::always_inline]] inline double fast_unit_interval(std::uint32_t high, std::uint32_t low) {
  return (to_double(high) * 0x1p21 + to_double(low >> 11)) * 0x1p-53;
}

/// log(x) for x in (0, 1]: x = 2^e m with m in [sqrt(1/2), sqrt(2)); log m = 2 atanh(s) with s = (m - 1) / (m + 1), by
/// its Taylor series to s^17, |s| < 0.172.
[[gnu::always_inline]] inline double fast_log(double x) {
  constexpr auto one = std::bit_cast<std::uint64_t>(1.0);
  const std::uint64_t bits = std::bit_cast<std::uint64_t>(x) + one;  // unsigned: AVX2 has no signed shift
  const std::uint64_t e = (bits - std::bit_cast<std::uint64_t>(std::numbers::sqrt2 / 2)) >> 52;  // plus 1023
  const double m = std::bit_cast<double>(bits - (e << 52)), exponent = to_double(e) - 1023.0;
  const double s = (m - 1.0) / (m + 1.0), z = s * s;
  double p = 1.0 / 17;
  p = p * z + 1.0 / 15;
  p = p * z + 1.0 / 13;
  p = p * z + 1.0 / 11;
  p = p * z + 1.0 / 9;
  p = p * z + 1.0 / 7;
  p = p * z + 1.0 / 5;
  p = p * z + 1.0 / 3;
  p = p * z + 1.0;
  return exponent * std::numbers::ln2 + 2.0 * s * p;
}

/// sin(r) and cos(r) for |r| <= pi / 4 by their Taylor series to r^15 and r^14.
[[gnu::always_inline]] inline std::array<double, 2> fast_sin_cos(double r) {
  const double z = r * r;
  double sin = -1.0 / 1307674368000;
  sin = sin * z + 1.0 / 6227020800;
  sin = sin * z - 1.0 / 39916800;
  sin = sin * z + 1.0 / 362880;
  sin = sin * z - 1.0 / 5040;
  sin = sin * z + 1.0 / 120;
  sin = sin * z - 1.0 / 6;
  double cos = -1.0 / 87178291200;
  cos = cos * z + 1.0 / 479001600;
  cos = cos * z - 1.0 / 3628800;
  cos = cos * z + 1.0 / 40320;
  cos = cos * z - 1.0 / 720;
  cos = cos * z + 1.0 / 24;
  cos = cos * z - 1.0 / 2;
  return {sin * z * r + r, cos * z + 1.0};
}

/// `a` where all bits of `mask` are set, `b` where none is: two conditional expressions would become a branch.
[[gnu::always_inline]] inline double select(std::uint64_t mask, double a, double b) {
  return std::bit_cast<double>((std::bit_cast<std::uint64_t>(a) & mask) | (std::bit_cast<std::uint64_t>(b) & ~mask));
}

/// `value`, or -value if bit 1 of `quadrant` is set.
[[gnu::always_inline]] inline double with_sign(double value, std::uint64_t quadrant) {
  return std::bit_cast<double>(std::bit_cast<std::uint64_t>(value) ^ ((quadrant & 2) << 62));
}

/// std times the pairs [first, first + pairs) of Box-Muller, approximately: `values` in fp64, `out` rounded. Returns
/// whether one of them may round differently.
[[gnu::always_inline]] inline bool approximate(std::uint64_t key, std::uint64_t first, std::size_t pairs, double std,
                                               Values& values, float* __restrict out) {
  std::array<Words, 4> words;
  for (std::size_t i = 0; i < pairs; ++i) {
    const auto four = philox4x32_rounds(key, first + i, 1);
    for (std::size_t w = 0; w < 4; ++w) words[w][i] = four[w];
  }
  Doubles radius, angles;
  for (std::size_t i = 0; i < pairs; ++i)
    radius[i] = std * std::sqrt(-2.0 * fast_log(1.0 - fast_unit_interval(words[0][i], words[1][i])));
  // A separate loop keeps the compiler from contracting this product into the subtraction below (FMA), where
  // `normal_at` rounds the angle first.
  for (std::size_t i = 0; i < pairs; ++i)
    angles[i] = 2.0 * std::numbers::pi * fast_unit_interval(words[2][i], words[3][i]);
  for (std::size_t i = 0; i < pairs; ++i) {
    // angle = k pi / 2 + r: pi / 2 as two numbers of 33 bits, whose multiples are exact, and the rest (fdlibm's).
    const double angle = angles[i], shifted = angle * (2 / std::numbers::pi) + 0x1.8p52, k = shifted - 0x1.8p52;
    const double r =
        ((angle - k * 1.57079632673412561417) - k * 6.07710050630396597660e-11) - k * 2.02226624879595063154e-21;
    const auto quadrant = std::bit_cast<std::uint64_t>(shifted);
    const auto [sin, cos] = fast_sin_cos(r);
    const std::uint64_t odd = -(quadrant & 1);
    values[2 * i] = radius[i] * with_sign(select(odd, sin, cos), quadrant + 1);
    values[2 * i + 1] = radius[i] * with_sign(select(odd, cos, sin), quadrant);
  }
  std::int64_t otherwise = 0;
  for (std::size_t i = 0; i < 2 * pairs; ++i) {
    out[i] = static_cast<float>(values[i]);
    otherwise |= may_round_otherwise(values[i]) ? 1 : 0;
  }
  return otherwise != 0;
}

using Approximate = bool (*)(std::uint64_t key, std::uint64_t first, std::size_t pairs, double std, Values& values,
                             float* __restrict out);

bool approximate_portable(std::uint64_t key, std::uint64_t first, std::size_t pairs, double std, Values& values,
                          float* __restrict out) {
  return approximate(key, first, pairs, std, values, out);
}

#ifdef __x86_64__
// NOLINTNEXTLINE(clang-diagnostic-ignored-attributes): GCC's prefer-vector-width
__attribute__((target("avx512f,avx512dq,fma,prefer-vector-width=512"))) bool approximate_avx512(
    std::uint64_t key, std::uint64_t first, std::size_t pairs, double std, Values& values, float* __restrict out) {
  return approximate(key, first, pairs, std, values, out);
}

const Approximate approximate_here =
    __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") ? approximate_avx512 : approximate_portable;
#else
constexpr Approximate approximate_here = approximate_portable;
#endif

/// At most pairs_at_once pairs, from an even element on.
void fill_pairs(Approximate approximate, std::uint64_t key, std::uint64_t first, double std, std::size_t pairs,
                float* out) {
  Values values;
  if (!approximate(key, first / 2, pairs, std, values, out)) return;
  for (std::size_t i = 0; i < 2 * pairs; ++i)
    if (may_round_otherwise(values[i])) out[i] = static_cast<float>(std * normal_at(key, first + i));
}

void fill(Approximate approximate, std::uint64_t key, std::uint64_t first, double std, std::span<float> out) {
  const auto alone = [&](std::size_t i) { out[i] = static_cast<float>(std * normal_at(key, first + i)); };
  std::size_t i = 0;
  if (first % 2 == 1 && !out.empty()) alone(i++);
  for (std::size_t pairs = 0; i + 1 < out.size(); i += 2 * pairs) {
    pairs = std::min((out.size() - i) / 2, pairs_at_once);
    fill_pairs(approximate, key, first + i, std, pairs, out.data() + i);
  }
  if (i < out.size()) alone(i);
}

}  // namespace

void fill_normal(std::uint64_t key, std::uint64_t first, double std, std::span<float> out) {
  fill(approximate_here, key, first, std, out);
}

void fill_normal_portable(std::uint64_t key, std::uint64_t first, double std, std::span<float> out) {
  fill(approximate_portable, key, first, std, out);
}

}  // namespace trireme
