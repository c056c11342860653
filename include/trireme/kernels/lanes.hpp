// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>

/// Arithmetic that GCC vectorises: sums over a fixed number of lanes (so that their order is fixed too), and exp.
namespace trireme::kernels {

inline constexpr std::int64_t lanes = 32;

/// Sum of term(i) for i in [0, n), in `lanes` interleaved partial sums.
template <class Term>
inline float lane_sum(std::int64_t n, const Term& term) {
  std::array<float, lanes> partial{};
  std::int64_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    for (std::int64_t l = 0; l < lanes; ++l) partial[l] += term(i + l);
  }
  for (std::int64_t l = 0; i + l < n; ++l) partial[l] += term(i + l);
  for (std::int64_t half = lanes / 2; half > 0; half /= 2) {
    for (std::int64_t l = 0; l < half; ++l) partial[l] += partial[l + half];
  }
  return partial[0];
}

/// Maximum of term(i) for i in [0, n); -infinity for n = 0.
template <class Term>
inline float lane_max(std::int64_t n, const Term& term) {
  std::array<float, lanes> partial;
  partial.fill(-INFINITY);
  std::int64_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    for (std::int64_t l = 0; l < lanes; ++l) {
      const float x = term(i + l);
      partial[l] = x > partial[l] ? x : partial[l];
    }
  }
  for (std::int64_t l = 0; i + l < n; ++l) partial[l] = std::max(partial[l], term(i + l));
  return *std::max_element(partial.begin(), partial.end());
}

/// exp(x) to about 1 ulp for x in [-87, 88]; the ends of that range outside it. NaN stays NaN.
/// Cody-Waite reduction to [-ln2/2, ln2/2] and the polynomial of Cephes' expf (Moshier).
inline float fast_exp(float x) {
  const float clamped = x < -87.0F ? -87.0F : (x > 88.0F ? 88.0F : x);
  const float shifted =
      clamped * 1.44269504088896341F + 12582912.0F;  // adding 1.5 * 2^23 rounds to an integer, in the low bits
  const float n = shifted - 12582912.0F;
  const float r = (clamped - n * 0.693359375F) + n * 2.12194440e-4F;
  float p = 1.9875691500e-4F;
  p = p * r + 1.3981999507e-3F;
  p = p * r + 8.3334519073e-3F;
  p = p * r + 4.1665795894e-2F;
  p = p * r + 1.6666665459e-1F;
  p = p * r + 5.0000001201e-1F;
  p = p * r * r + r + 1.0F;
  const auto exponent = (std::bit_cast<std::uint32_t>(shifted) - 0x4b400000U) << 23;
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(p) + exponent);
}

}  // namespace trireme::kernels
