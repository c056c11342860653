// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "trireme/kernels/grad.hpp"

namespace trireme::kernels {

// RMSNorm (Zhang and Sennrich 2019): y = x / sqrt(mean(x^2) + eps) * (offset + weight), where `offset` is 0 or, in
// Gemma's norms, 1, added in fp32. Statistics and sums are in fp32 for every data type; rows of x may be apart (any
// stride between rows, none within).

/// Writes y = norm(x) * weight and rstd = 1 / sqrt(mean(x^2) + eps).
/// x, y: [N, D] fp32 or bf16; weight: [D] of the same type; rstd: [N] fp32.
void rms_norm(const at::Tensor& x, const at::Tensor& weight, double eps, const at::Tensor& y, const at::Tensor& rstd,
              float offset = 0);

/// Writes y = x * rstd * weight again from a saved rstd, bitwise equal to the result of rms_norm.
void rms_norm_again(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& rstd, const at::Tensor& y,
                    float offset = 0);

/// Writes d_x = d_residual + d(norm(x) * weight)/dx applied to d_y, and the weight's gradient. d_residual: undefined
/// for none; d_x may be d_y or d_residual itself. d_weight is summed in chunks of 32 rows, then over chunks in order:
/// the same bits for any number of threads.
void rms_norm_backward(const at::Tensor& d_y, const at::Tensor& x, const at::Tensor& weight, const at::Tensor& rstd,
                       const at::Tensor& d_residual, const at::Tensor& d_x, const Grad& d_weight, float offset = 0);

/// Norms of every head of queries and of keys, adjacent in a row: heads of `head_dim`, the first q_heads
/// with one weight, the others with another. Weights: [head_dim].
struct HeadNorms {
  at::Tensor q_weight, k_weight;
  std::int64_t q_heads = 0, head_dim = 0;
  float offset = 0;  ///< as above
};

/// rms_norm of each head, or rms_norm_again. x, y: [N, heads * head_dim]; rstd: [heads, N] fp32. On a device one launch
/// for all heads if these are whole packs of 16 bytes, up to 32 of them.
void rms_norm_heads(const at::Tensor& x, const HeadNorms& norms, double eps, const at::Tensor& y,
                    const at::Tensor& rstd, bool again);

/// rms_norm_backward of each head, without a residual; each weight's gradient is the sum over its heads. d_x may be
/// d_y.
void rms_norm_heads_backward(const at::Tensor& d_y, const at::Tensor& x, const HeadNorms& norms, const at::Tensor& rstd,
                             const at::Tensor& d_x, const Grad& d_q_weight, const Grad& d_k_weight);

}  // namespace trireme::kernels
