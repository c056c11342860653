// SPDX-License-Identifier: Apache-2.0
//
// row_kernels.cpp on sixteen lanes, called only where the CPU has AVX-512. Templates stay in the unnamed namespace: of
// several equal instantiations with external linkage the linker keeps one, which might be this file's.
#include <immintrin.h>

#include <array>
#include <cmath>
#include <cstring>

#include "kernels/simd/row_kernels.hpp"

// AVX512-BF16 is for Narrowing::instruction alone.
#define TRIREME_AVX512 __attribute__((target("avx512f,avx512bw,avx512bf16,fma,prefer-vector-width=512")))
#define TRIREME_AVX512_INLINE TRIREME_AVX512 [[gnu::always_inline]] inline

namespace trireme::kernels {
namespace {

using Sixteen = float __attribute__((vector_size(64)));
using SixteenBits = std::uint32_t __attribute__((vector_size(64)));
using SixteenHalves = std::uint16_t __attribute__((vector_size(32)));
constexpr std::int64_t lanes = 16;

/// Conversion of fp32 to bf16: by integer arithmetic, or by AVX512-BF16's instruction, which flushes subnormals.
enum class Narrowing { arithmetic, instruction };

TRIREME_AVX512_INLINE Sixteen sixteen(float x) { return x - Sixteen{}; }

TRIREME_AVX512_INLINE Sixteen widen(SixteenHalves x) {
  return reinterpret_cast<Sixteen>(__builtin_convertvector(x, SixteenBits) << 16);
}
TRIREME_AVX512_INLINE SixteenHalves narrow(Sixteen x) {
  const SixteenBits bits = reinterpret_cast<SixteenBits>(x);
  const SixteenBits rounded = bits + 0x7fffU + ((bits >> 16) & 1U);
  return __builtin_convertvector((x == x ? rounded : (bits | 0x400000U)) >> 16, SixteenHalves);
}

// n: how many elements are there, at least 1; of sixteen or more all lanes are used, otherwise the others are `fill`,
// or not stored.
TRIREME_AVX512_INLINE Sixteen load(const float* from, std::int64_t n, float fill = 0) {
  Sixteen x = sixteen(fill);
  if (n >= lanes) {
    std::memcpy(&x, from, sizeof x);
  } else {
    std::memcpy(&x, from, static_cast<std::size_t>(n) * sizeof(float));
  }
  return x;
}
TRIREME_AVX512_INLINE Sixteen load(const c10::BFloat16* from, std::int64_t n, float fill = 0) {
  SixteenHalves x = narrow(sixteen(fill));
  if (n >= lanes) {
    std::memcpy(&x, from, sizeof x);
  } else {
    std::memcpy(&x, from, static_cast<std::size_t>(n) * sizeof(c10::BFloat16));
  }
  return widen(x);
}
template <Narrowing narrowing = Narrowing::arithmetic>
TRIREME_AVX512_INLINE void store(float* to, Sixteen x, std::int64_t n) {
  if (n >= lanes) {
    std::memcpy(to, &x, sizeof x);
  } else {
    std::memcpy(to, &x, static_cast<std::size_t>(n) * sizeof(float));
  }
}
template <Narrowing narrowing>
TRIREME_AVX512_INLINE void store(c10::BFloat16* to, Sixteen x, std::int64_t n) {
  const SixteenHalves halves = narrowing == Narrowing::instruction
                                   ? reinterpret_cast<SixteenHalves>(_mm512_cvtneps_pbh(reinterpret_cast<__m512>(x)))
                                   : narrow(x);
  if (n >= lanes) {
    std::memcpy(static_cast<void*>(to), &halves, sizeof halves);
  } else {
    std::memcpy(static_cast<void*>(to), &halves, static_cast<std::size_t>(n) * sizeof(c10::BFloat16));
  }
}

/// fast_exp of lanes.hpp.
TRIREME_AVX512_INLINE Sixteen fast_exp(Sixteen x, bool above_zero) {
  Sixteen clamped = x < -87.0F ? sixteen(-87.0F) : x;
  if (above_zero) clamped = clamped > 88.0F ? sixteen(88.0F) : clamped;
  const Sixteen shifted = clamped * 1.44269504F + 12582912.0F;
  const Sixteen n = shifted - 12582912.0F;
  const Sixteen r = (clamped - n * 0.693359375F) + n * 2.12194440e-4F;
  Sixteen p = sixteen(1.39411772e-3F);
  p = p * r + 8.37518089e-3F;
  p = p * r + 4.16663513e-2F;
  p = p * r + 1.66664153e-1F;
  p = p * r + 0.5F;
  p = p * r + 1.0F;
  p = p * r + 1.0F;
  return reinterpret_cast<Sixteen>(reinterpret_cast<SixteenBits>(p) + (reinterpret_cast<SixteenBits>(shifted) << 23));
}

TRIREME_AVX512_INLINE Sixteen sigmoid(Sixteen z) { return 1.0F / (1.0F + fast_exp(-z, true)); }

TRIREME_AVX512_INLINE float sum_of(Sixteen x) {
  float sum[lanes];
  std::memcpy(sum, &x, sizeof x);
  for (std::int64_t half = lanes / 2; half > 0; half /= 2) {
    for (std::int64_t l = 0; l < half; ++l) sum[l] += sum[l + half];
  }
  return sum[0];
}

template <class T>
TRIREME_AVX512 float maximum_of(const T* row, std::int64_t n) {
  Sixteen even = sixteen(-INFINITY), odd = even;
  std::int64_t i = 0;
  for (; i + 2 * lanes <= n; i += 2 * lanes) {
    const Sixteen a = load(row + i, lanes);
    const Sixteen b = load(row + i + lanes, lanes);
    even = a > even ? a : even;
    odd = b > odd ? b : odd;
  }
  for (; i < n; i += lanes) {
    const Sixteen a = load(row + i, n - i, -INFINITY);
    even = a > even ? a : even;
  }
  even = even > odd ? even : odd;
  float top = even[0];
  for (int l = 1; l < lanes; ++l) top = even[l] > top ? even[l] : top;
  return top;
}

TRIREME_AVX512 float exponentials(float* row, std::int64_t n, float scale, float top) {
  Sixteen even{}, odd{};
  std::int64_t i = 0;
  for (; i + 2 * lanes <= n; i += 2 * lanes) {
    const Sixteen a = fast_exp(scale * (load(row + i, lanes) - top), false);
    const Sixteen b = fast_exp(scale * (load(row + i + lanes, lanes) - top), false);
    store(row + i, a, lanes);
    store(row + i + lanes, b, lanes);
    even += a;
    odd += b;
  }
  float rest = 0;
  for (; i < n; i += lanes) {
    const Sixteen a = fast_exp(scale * (load(row + i, n - i) - top), false);
    store(row + i, a, n - i);
    for (std::int64_t l = 0; l < lanes && i + l < n; ++l) rest += a[l];
  }
  return sum_of(even + odd) + rest;
}

TRIREME_AVX512 void probabilities(float* p, float* d, const float* lse, const float* delta, float scale,
                                  std::int64_t n) {
  for (std::int64_t i = 0; i < n; i += lanes) {
    const Sixteen e = fast_exp(scale * load(p + i, n - i) - load(lse + i, n - i), false);
    store(p + i, e, n - i);
    store(d + i, e * (load(d + i, n - i) - load(delta + i, n - i)) * scale, n - i);
  }
}

/// fast_tanh of lanes.hpp.
TRIREME_AVX512_INLINE Sixteen fast_tanh(Sixteen x) {
  const Sixteen square = x * x;
  Sixteen p = sixteen(-5.70498872745e-3F);
  p = p * square + 2.06390887954e-2F;
  p = p * square - 5.37397155531e-2F;
  p = p * square + 1.33314422036e-1F;
  p = p * square - 3.33332819422e-1F;
  const Sixteen near = x + x * square * p;
  const Sixteen far = 1.0F - 2.0F / (fast_exp(2.0F * x, true) + 1.0F);
  return square < 0.390625F ? near : far;
}

TRIREME_AVX512 void softcap(float* row, std::int64_t n, float scale, float cap) {
  const float inside = scale / cap;
  for (std::int64_t i = 0; i < n; i += lanes) store(row + i, cap * fast_tanh(inside * load(row + i, n - i)), n - i);
}

TRIREME_AVX512 void capped_probabilities(float* p, float* d, const float* lse, const float* delta, float scale,
                                         float cap, std::int64_t n) {
  const float inside = scale / cap;
  for (std::int64_t i = 0; i < n; i += lanes) {
    const Sixteen t = fast_tanh(inside * load(p + i, n - i));
    const Sixteen e = fast_exp(cap * t - load(lse + i, n - i), false);
    store(p + i, e, n - i);
    store(d + i, e * (load(d + i, n - i) - load(delta + i, n - i)) * ((1.0F - t * t) * scale), n - i);
  }
}

template <class T>
TRIREME_AVX512 Softmax softmax(const T* row, std::int64_t n) {
  const float top = maximum_of(row, n);
  Sixteen even{}, odd{};
  std::int64_t i = 0;
  for (; i + 2 * lanes <= n; i += 2 * lanes) {
    even += fast_exp(load(row + i, lanes) - top, false);
    odd += fast_exp(load(row + i + lanes, lanes) - top, false);
  }
  float rest = 0;
  for (; i < n; i += lanes) {
    const Sixteen a = fast_exp(load(row + i, n - i) - top, false);
    for (std::int64_t l = 0; l < lanes && i + l < n; ++l) rest += a[l];
  }
  return {.top = top, .sum = sum_of(even + odd) + rest};
}

template <Narrowing narrowing, class T>
TRIREME_AVX512 void softmax_gradient(T* row, float top, float factor, std::int64_t n) {
  for (std::int64_t i = 0; i < n; i += lanes) {
    store<narrowing>(row + i, factor * fast_exp(load(row + i, n - i) - top, false), n - i);
  }
}

template <Narrowing narrowing, class T>
TRIREME_AVX512 void swiglu(const T* gate, const T* up, T* out, std::int64_t n) {
  for (std::int64_t i = 0; i < n; i += lanes) {
    const Sixteen z = load(gate + i, n - i);
    store<narrowing>(out + i, z * sigmoid(z) * load(up + i, n - i), n - i);
  }
}

template <Narrowing narrowing, class T>
TRIREME_AVX512 void swiglu_backward(const T* d_out, const T* gate, const T* up, T* d_gate, T* d_up, T* out,
                                    std::int64_t n) {
  for (std::int64_t i = 0; i < n; i += lanes) {
    const Sixteen z = load(gate + i, n - i);
    const Sixteen u = load(up + i, n - i);
    const Sixteen g = load(d_out + i, n - i);
    const Sixteen s = sigmoid(z);
    const Sixteen silu = z * s;
    store<narrowing>(d_gate + i, g * u * (s + silu * (1.0F - s)), n - i);
    store<narrowing>(d_up + i, g * silu, n - i);
    store<narrowing>(out + i, silu * u, n - i);
  }
}

template <Narrowing narrowing>
constexpr RowKernels kernels{.maximum = maximum_of<float>,
                             .exponentials = exponentials,
                             .probabilities = probabilities,
                             .softcap = softcap,
                             .capped_probabilities = capped_probabilities,
                             .softmax_fp32 = softmax<float>,
                             .softmax_bf16 = softmax<c10::BFloat16>,
                             .softmax_gradient_bf16 = softmax_gradient<narrowing, c10::BFloat16>,
                             .swiglu_fp32 = swiglu<narrowing, float>,
                             .swiglu_bf16 = swiglu<narrowing, c10::BFloat16>,
                             .swiglu_backward_fp32 = swiglu_backward<narrowing, float>,
                             .swiglu_backward_bf16 = swiglu_backward<narrowing, c10::BFloat16>};

}  // namespace

const RowKernels avx512_row_kernels = kernels<Narrowing::arithmetic>;
const RowKernels avx512_bf16_row_kernels = kernels<Narrowing::instruction>;

}  // namespace trireme::kernels
