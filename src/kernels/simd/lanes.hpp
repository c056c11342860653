// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <c10/util/BFloat16.h>

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>

/// Arithmetic on eight floats at a time, in GCC's vector extension: without named instruction sets, with a fixed order
/// of sums, and independent of the compiler's vectorization of loops with exp or comparisons.
namespace trireme::kernels {

using Eight = float __attribute__((vector_size(32)));
using EightBits = std::uint32_t __attribute__((vector_size(32)));
using EightHalves = std::uint16_t __attribute__((vector_size(16)));

inline Eight eight(float x) { return x - Eight{}; }  // a broadcast; adding zero would be an addition
inline EightBits bits_of(Eight x) { return reinterpret_cast<EightBits>(x); }
inline Eight from_bits(EightBits x) { return reinterpret_cast<Eight>(x); }
inline Eight larger(Eight a, Eight b) { return a > b ? a : b; }

/// Lanes of a load or store: all eight, or the first few at a row's end.
struct All {};
struct First {
  std::int64_t count;
};

inline Eight widen(EightHalves x) { return from_bits(__builtin_convertvector(x, EightBits) << 16); }
/// To bf16, to nearest, ties to even; NaN stays NaN.
inline EightHalves narrow(Eight x) {
  const EightBits bits = bits_of(x);
  const EightBits rounded = bits + 0x7fffU + ((bits >> 16) & 1U);
  return __builtin_convertvector((x == x ? rounded : (bits | 0x400000U)) >> 16, EightHalves);
}

inline Eight load(const float* from, All) {
  Eight x;
  std::memcpy(&x, from, sizeof x);
  return x;
}
inline Eight load(const c10::BFloat16* from, All) {
  EightHalves x;
  std::memcpy(&x, from, sizeof x);
  return widen(x);
}
inline void store(float* to, Eight x, All) { std::memcpy(to, &x, sizeof x); }
inline void store(c10::BFloat16* to, Eight x, All) {
  const EightHalves halves = narrow(x);
  std::memcpy(to, &halves, sizeof halves);
}

/// Lanes beyond `first.count` are zero.
template <class T>
inline Eight load(const T* from, First first) {
  T padded[8] = {};
  std::memcpy(padded, from, static_cast<std::size_t>(first.count) * sizeof(T));
  return load(padded, All{});
}
template <class T>
inline void store(T* to, Eight x, First first) {
  T padded[8];
  store(padded, x, All{});
  std::memcpy(to, padded, static_cast<std::size_t>(first.count) * sizeof(T));
}

/// `x` with `other` in the lanes that a load or store of `lanes` does not touch.
inline Eight keep(Eight x, Eight /*other*/, All) { return x; }
inline Eight keep(Eight x, Eight other, First first) {
  for (std::int64_t l = first.count; l < 8; ++l) x[l] = other[l];
  return x;
}

/// Calls body(i, lanes) for i = 0, 8, 16, ... below n: the last with First where eight do not fit.
template <class Body>
inline void in_eights(std::int64_t n, const Body& body) {
  std::int64_t i = 0;
  for (; i + 8 <= n; i += 8) body(i, All{});
  if (i < n) body(i, First{n - i});
}

inline float sum(Eight x) { return ((x[0] + x[4]) + (x[2] + x[6])) + ((x[1] + x[5]) + (x[3] + x[7])); }
inline float maximum(Eight x) {
  float top = x[0];
  for (int l = 1; l < 8; ++l) top = x[l] > top ? x[l] : top;
  return top;
}

/// exp(x) to about 1 ulp for x in [-87, 0] and, unless x is never above 0, up to 88; the ends of that range outside it.
/// NaN stays NaN. x = n ln 2 + r: n by adding 1.5 * 2^23, which rounds to an integer in the low bits; r in two steps,
/// the first exact (Cody and Waite 1980); e^r by a polynomial on [-ln 2 / 2, ln 2 / 2] (interpolation at Chebyshev's
/// nodes).
template <bool above_zero = true>
inline Eight fast_exp(Eight x) {
  Eight clamped = x < -87.0F ? eight(-87.0F) : x;
  if constexpr (above_zero) clamped = clamped > 88.0F ? eight(88.0F) : clamped;
  const Eight shifted = clamped * 1.44269502F + 12582912.0F;
  const Eight n = shifted - 12582912.0F;
  const Eight r = (clamped - n * 0.693359375F) + n * 2.12194440e-4F;
  Eight p = eight(1.39411772e-03F);
  p = p * r + 8.37518089e-03F;
  p = p * r + 4.16663513e-02F;
  p = p * r + 1.66664153e-01F;
  p = p * r + 5.00000000e-01F;
  p = p * r + 1.0F;
  p = p * r + 1.0F;
  return from_bits(bits_of(p) + (bits_of(shifted) << 23));
}
inline float fast_exp(float x) { return fast_exp(eight(x))[0]; }

/// tanh(x) to about 2 ulp: near 0 by a polynomial in x^2 (Cephes, Moshier 1989), elsewhere by exp(2x).
inline Eight fast_tanh(Eight x) {
  const Eight square = x * x;
  Eight p = eight(-5.70498872745e-3F);
  p = p * square + 2.06390887954e-2F;
  p = p * square - 5.37397155531e-2F;
  p = p * square + 1.33314422036e-1F;
  p = p * square - 3.33332819422e-1F;
  const Eight near = x + x * square * p;
  const Eight far = 1.0F - 2.0F / (fast_exp(2.0F * x) + 1.0F);
  return square < 0.390625F ? near : far;
}

/// Sum of term(i, lanes) over the eights of [0, n), in four interleaved partial sums. A term's untouched lanes must be
/// zero.
template <class Term>
inline float lane_sum(std::int64_t n, const Term& term) {
  std::array<Eight, 4> partial{};
  std::int64_t i = 0;
  for (; i + 32 <= n; i += 32) {
    for (std::size_t part = 0; part < 4; ++part) partial[part] += term(i + static_cast<std::int64_t>(8 * part), All{});
  }
  for (; i + 8 <= n; i += 8) partial[0] += term(i, All{});
  if (i < n) partial[1] += term(i, First{n - i});
  return sum((partial[0] + partial[1]) + (partial[2] + partial[3]));
}

/// Maximum of term(i, lanes) over the eights of [0, n); -infinity for n = 0. A term's untouched lanes must be
/// -infinity.
template <class Term>
inline float lane_max(std::int64_t n, const Term& term) {
  std::array<Eight, 4> partial;
  partial.fill(eight(-INFINITY));
  std::int64_t i = 0;
  for (; i + 32 <= n; i += 32) {
    for (std::size_t part = 0; part < 4; ++part) {
      partial[part] = larger(partial[part], term(i + static_cast<std::int64_t>(8 * part), All{}));
    }
  }
  for (; i + 8 <= n; i += 8) partial[0] = larger(partial[0], term(i, All{}));
  if (i < n) partial[1] = larger(partial[1], term(i, First{n - i}));
  return maximum(larger(larger(partial[0], partial[1]), larger(partial[2], partial[3])));
}

}  // namespace trireme::kernels
