// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include "trireme/kernels/grad.hpp"

namespace trireme::kernels {

/// y[n] += bias. y: [N, M]; bias: [M]; both fp32 or both bf16; rows of y may be apart.
void add_bias(const at::Tensor& y, const at::Tensor& bias);

/// Writes or adds the sum of the rows of d_y [N, M], in fixed chunks: the same bits on any number of threads.
void bias_gradient(const at::Tensor& d_y, const Grad& d_bias);

}  // namespace trireme::kernels
