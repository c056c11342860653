// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <span>
#include <vector>

#include "trireme/shard/layout.hpp"

/// Arithmetic of verbs on single tensors. In host memory plain loops on the calling thread, since a lane's thread has
/// no team; on a GPU by libtorch on the lane's stream. The results are bitwise equal.
namespace trireme::executor {

/// A tensor's elements in the host's memory.
[[nodiscard]] inline std::span<float> floats(const at::Tensor& tensor) {
  return {tensor.mutable_data_ptr<float>(), static_cast<std::size_t>(tensor.numel())};
}

/// to (+)= from; fp32.
void put(const at::Tensor& from, const at::Tensor& to, bool add);
/// Every element rounded to bf16, in place; fp32.
void round_to_bf16(const at::Tensor& values);
/// `from` as fp32; itself if it is.
[[nodiscard]] at::Tensor widened(const at::Tensor& from);
/// sum (+ residual if it is defined), rounded once to `type`. May be `sum` itself, overwritten.
[[nodiscard]] at::Tensor plus_residual(const at::Tensor& sum, const at::Tensor& residual, at::ScalarType type);
/// The ranges of `values` end to end in `packed`, and back.
void pack(const at::Tensor& values, const std::vector<shard::Range>& ranges, const at::Tensor& packed);
void unpack(const at::Tensor& packed, const std::vector<shard::Range>& ranges, const at::Tensor& values);

}  // namespace trireme::executor
