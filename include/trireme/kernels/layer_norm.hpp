// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include "trireme/kernels/grad.hpp"

namespace trireme::kernels {

// LayerNorm (Ba et al. 2016) over rows of width D: y = (x - mean) rstd * weight + bias with rstd = 1/sqrt(var + eps),
// computed in fp32. x, y: [N, D] fp32 or bf16; weight, bias: [D] of the same type; statistics: [2, N] fp32, the means
// and the rstds.

/// Writes y and statistics.
void layer_norm(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, double eps, const at::Tensor& y,
                const at::Tensor& statistics);

/// Recomputes y from the statistics: the same bits.
void layer_norm_again(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                      const at::Tensor& statistics, const at::Tensor& y);

/// Writes d_x = d_residual + the gradient of y by x, and the gradients of weight and bias. d_residual: undefined for
/// none. d_x may be d_y or d_residual.
void layer_norm_backward(const at::Tensor& d_y, const at::Tensor& x, const at::Tensor& weight,
                         const at::Tensor& statistics, const at::Tensor& d_residual, const at::Tensor& d_x,
                         const Grad& d_weight, const Grad& d_bias);

}  // namespace trireme::kernels
