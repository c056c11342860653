// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

namespace trireme::kernels::cuda {

/// d = a b, or a b + c, by cuBLASLt with sums in fp32, on the current stream. a, b: bf16 matrices, either of them may
/// be a transposed view; d: bf16 or fp32, contiguous rows; c: undefined, d itself or a matrix like d that does not
/// overlap it. Of cuBLAS's candidates for a shape the fastest is taken, which is measured when the shape is first seen,
/// in d; with deterministic sums (set_deterministic), into a graph or where d is c, the first one. Products that differ
/// in their sizes alone have that for four shapes; further ones share an algorithm with those of about their size, or
/// with deterministic sums have their own, which is not kept. False where cuBLAS has none: nothing was done.
[[nodiscard]] bool multiply(const at::Tensor& a, const at::Tensor& b, const at::Tensor& c, const at::Tensor& d);

/// Measurements of `multiply` in this process.
struct Measured {
  int shapes = 0, algorithms = 0;
};
[[nodiscard]] Measured measured_products();

}  // namespace trireme::kernels::cuda
