// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

namespace trireme::kernels {

// SwiGLU (Shazeer 2020): out = silu(gate) * up with silu(z) = z / (1 + exp(-z)), computed in fp32.
// gate_up: [N, 2I], gate in the first I columns, up in the others; fp32 or bf16.

/// Writes out: [N, I].
void swiglu(const at::Tensor& gate_up, const at::Tensor& out);

/// Writes d_gate_up: [N, 2I] (may be gate_up itself) and out: [N, I], the forward's result again, for the gradient of
/// the weight after it. d_out: [N, I]; `out` may be d_out itself.
void swiglu_backward(const at::Tensor& d_out, const at::Tensor& gate_up, const at::Tensor& d_gate_up,
                     const at::Tensor& out);

}  // namespace trireme::kernels
