// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

namespace trireme::kernels {

// GeGLU (Shazeer 2020) with GELU in its tanh form: out = gelu(gate) * up, computed in fp32. gate_up: [N, 2I], gate in
// the first I columns, up in the others; fp32 or bf16.

/// Writes out: [N, I].
void geglu_tanh(const at::Tensor& gate_up, const at::Tensor& out);

/// Writes d_gate_up: [N, 2I] (may be gate_up itself) and out: [N, I], the forward's result again. d_out: [N, I]; `out`
/// may be d_out itself.
void geglu_tanh_backward(const at::Tensor& d_out, const at::Tensor& gate_up, const at::Tensor& d_gate_up,
                         const at::Tensor& out);

}  // namespace trireme::kernels
