// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>

#include "trireme/kernels/experts.hpp"
#include "trireme/kernels/grouped.hpp"

/// The twins of the kernels of experts.hpp and grouped.hpp for tensors on a CUDA device, as cuda.hpp has the others.
namespace trireme::kernels::cuda {

[[nodiscard]] at::Tensor choose_experts(const at::Tensor& logits, const model::Experts& router, const at::Tensor& bias);
[[nodiscard]] at::Tensor expert_weights(const at::Tensor& logits, const at::Tensor& experts,
                                        const model::Experts& router);
[[nodiscard]] at::Tensor sequence_loads(const at::Tensor& experts, const Sequences& of, std::int64_t count,
                                        std::int64_t all_experts);
/// Returns the losses, balance and z, as [2] fp64 on the device; undefined if both scales are 0.
[[nodiscard]] at::Tensor router_backward(const at::Tensor& d_weights, const at::Tensor& logits,
                                         const at::Tensor& experts, const Sequences& sequences,
                                         const model::Experts& router, RouterScales scales, const at::Tensor& d_logits);
/// All except `begin`, which stays on the device: int32 [E + 1] in `begin_on_device`.
[[nodiscard]] ExpertRows expert_rows(const at::Tensor& experts, std::int64_t count);
void gather_rows(const at::Tensor& x, const ExpertRows& rows, const at::Tensor& out);
void sum_rows(const at::Tensor& values, const ExpertRows& rows, const at::Tensor& residual, const at::Tensor& out);
void scale_rows(const at::Tensor& values, const at::Tensor& weights, const ExpertRows& rows, const at::Tensor& out);
void weight_gradients(const at::Tensor& d_scaled, const at::Tensor& values, const ExpertRows& rows,
                      const at::Tensor& out);
void move_segments(const at::Tensor& from, std::span<const std::int64_t> from_begin,
                   std::span<const std::int64_t> to_begin, const at::Tensor& to);

/// Whether libtorch has a grouped product of bf16 for this device without a host synchronization: from compute
/// capability 9.0 on. On other devices it copies the groups to the host and waits.
[[nodiscard]] bool multiplies_in_groups();
[[nodiscard]] at::Tensor grouped_product(const at::Tensor& x, const at::Tensor& matrices,
                                         std::span<const std::int64_t> begin);

}  // namespace trireme::kernels::cuda
