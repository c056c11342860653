// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

namespace trireme::kernels {

// GELU in its tanh form (Hendrycks and Gimpel 2016): x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))). x: [N, M], fp32 or
// bf16; fp32 inside.

/// Writes out [N, M].
void gelu_tanh(const at::Tensor& x, const at::Tensor& out);

/// Writes the gradient by x, and the forward's value again. d_x may be d_out, out may not.
void gelu_tanh_backward(const at::Tensor& d_out, const at::Tensor& x, const at::Tensor& d_x, const at::Tensor& out);

}  // namespace trireme::kernels
