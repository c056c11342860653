// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

namespace trireme::kernels::cuda {

/// d = a b, or a b + c, by cuBLASLt with sums in fp32, on the current stream. a, b: bf16 matrices, each possibly a
/// transposed view; d: bf16 or fp32, contiguous rows; c: undefined, d itself or a matrix like d that does not overlap
/// it. Uses the fastest of cuBLAS's candidates for a shape, measured at the first call, in d; with deterministic sums
/// (set_deterministic), into a graph or if d is c, the first candidate. Products that differ only in their sizes are
/// measured for four shapes; further ones share an algorithm with those of similar sizes, or with deterministic sums
/// have their own, which is not cached. Returns false, without computing, if cuBLAS has none.
[[nodiscard]] bool multiply(const at::Tensor& a, const at::Tensor& b, const at::Tensor& c, const at::Tensor& d);

/// Measurements of `multiply` in this process.
struct Measured {
  int shapes = 0, algorithms = 0;
};
[[nodiscard]] Measured measured_products();

}  // namespace trireme::kernels::cuda
