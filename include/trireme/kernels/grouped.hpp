// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>

/// Products of rows sorted by expert with the matrices of their experts, in one call.
namespace trireme::kernels {

/// Whether `grouped_product` takes them: rows on a GPU that has such a product (compute capability 9.0 or later), bf16,
/// all rows and columns whole pieces of 16 bytes. Elsewhere products go expert by expert. matrices: undefined if the
/// experts' do not follow each other.
[[nodiscard]] bool multiplies_in_groups(const at::Tensor& x, const at::Tensor& matrices);

/// out [R, n] = rows [begin[e], begin[e + 1]) of x [R, m] times matrices[e], of [E, m, n]. x: contiguous.
[[nodiscard]] at::Tensor grouped_product(const at::Tensor& x, const at::Tensor& matrices,
                                         std::span<const std::int64_t> begin);

}  // namespace trireme::kernels
