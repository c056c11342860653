// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <c10/util/BFloat16.h>

#include <cstdint>

/// The loops with exponentials, one row at a time, in versions chosen once by the CPU's instructions.
namespace trireme::kernels {

/// A row's maximum, and the sum of exp(x - maximum): relative to the maximum nothing is lost to a common offset.
struct Softmax {
  float top, sum;
};

/// Every function works on n elements of a row; results may differ in the last bit between versions.
struct RowKernels {
  float (*maximum)(const float* row, std::int64_t n);
  /// exp(scale * (row[i] - top)) in place, none of them above `top`; returns their sum.
  float (*exponentials)(float* row, std::int64_t n, float scale, float top);
  /// p[i] = exp(scale * p[i] - lse[i]); d[i] = p[i] * (d[i] - delta[i]) * scale.
  void (*probabilities)(float* p, float* d, const float* lse, const float* delta, float scale, std::int64_t n);
  /// row[i] = cap * tanh(scale * row[i] / cap).
  void (*softcap)(float* row, std::int64_t n, float scale, float cap);
  /// probabilities() with the softcap c = cap * tanh(scale * p[i] / cap) instead of the score: d[i] is also multiplied
  /// by its slope 1 - (c / cap)^2.
  void (*capped_probabilities)(float* p, float* d, const float* lse, const float* delta, float scale, float cap,
                               std::int64_t n);

  Softmax (*softmax_fp32)(const float* row, std::int64_t n);
  Softmax (*softmax_bf16)(const c10::BFloat16* row, std::int64_t n);
  /// row[i] = factor * exp(row[i] - top).
  void (*softmax_gradient_bf16)(c10::BFloat16* row, float top, float factor, std::int64_t n);

  // Documented in swiglu.hpp; `out` of the backward may be d_out, d_gate and d_up may be gate and up.
  void (*swiglu_fp32)(const float* gate, const float* up, float* out, std::int64_t n);
  void (*swiglu_bf16)(const c10::BFloat16* gate, const c10::BFloat16* up, c10::BFloat16* out, std::int64_t n);
  void (*swiglu_backward_fp32)(const float* d_out, const float* gate, const float* up, float* d_gate, float* d_up,
                               float* out, std::int64_t n);
  void (*swiglu_backward_bf16)(const c10::BFloat16* d_out, const c10::BFloat16* gate, const c10::BFloat16* up,
                               c10::BFloat16* d_gate, c10::BFloat16* d_up, c10::BFloat16* out, std::int64_t n);
};

/// The fastest that run here.
extern const RowKernels& row_kernels;

extern const RowKernels portable_row_kernels;
/// For CPUs with AVX-512 (F and BW).
extern const RowKernels avx512_row_kernels;
/// For those with AVX512-BF16 too.
extern const RowKernels avx512_bf16_row_kernels;

}  // namespace trireme::kernels
