// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <span>

#include "trireme/optim/adamw.hpp"
#include "trireme/shard/layout.hpp"

/// The optimizer's passes over tensors where the step computes. On a GPU they are launched on the calling thread's
/// current stream and return at once.
namespace trireme::optim {

/// [elements] each, on the same device: fp32, or moments in bf16. remainder: of split masters, in words of 16 bits as a
/// bf16 tensor; then there is no `master`.
struct DeviceState {
  at::Tensor master, m, v, remainder{};
};

/// One AdamW step as `adamw` on spans. gradient: fp32 [elements]. compute: bf16 [elements], which becomes the rounded
/// masters, and holds them with the remainder if there is one; undefined: there is none.
void adamw(const AdamWStep& step, std::span<const UpdateRange> ranges, const at::Tensor& gradient,
           const DeviceState& state, const at::Tensor& compute);

/// Adds the sum of the squares of `range` of `values` to `into`. values: fp32 [elements]; into: fp64 [1] on the same
/// device.
void sum_of_squares(const at::Tensor& values, const shard::Range& range, const at::Tensor& into);

}  // namespace trireme::optim
