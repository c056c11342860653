// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <span>
#include <vector>

#include "trireme/nn/stage.hpp"

/// Shared by the stages.
namespace trireme::nn {

/// Several weights [M_i, K] as one [sum M_i, K] if they are contiguous in one buffer, as in a flat parameter whose
/// sizes are multiples of the alignment: one product instead of several. Otherwise an undefined tensor.
[[nodiscard]] at::Tensor joined(std::span<const at::Tensor> matrices);

/// x [w_0; w_1; ...]^T: the concatenated outputs, [N, sum M_i]. In fp8 they are one weight, contiguous or not.
[[nodiscard]] at::Tensor joint_linear(const at::Tensor& x, std::span<const at::Tensor> weights, Fp8 fp8 = Fp8::none);
/// The gradient of joint_linear by x. d_y: [N, sum M_i].
[[nodiscard]] at::Tensor joint_backward_input(const at::Tensor& d_y, std::span<const at::Tensor> weights,
                                              Fp8 fp8 = Fp8::none);
/// The gradients of joint_linear by its weights.
void joint_backward_weight(const at::Tensor& d_y, const at::Tensor& x, std::span<const Grad> grads);

}  // namespace trireme::nn
