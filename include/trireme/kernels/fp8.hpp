// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "trireme/base/fp8.hpp"
#include "trireme/kernels/fp8_format.hpp"

/// Products of linear layers whose operands are rounded to 8 bits, with sums in fp32 (Micikevicius et al. 2022; MX: OCP
/// Microscaling Formats 2023). A scale is the least power of two for which no scaled element exceeds the largest value
/// of its type. It is shared by a row of an operand, by 32 neighbours along the summed dimension, or by all of it. On
/// the host the operands are rounded, widened and multiplied in fp32; on a device libtorch's _scaled_mm multiplies the
/// same values. Not for weight gradients: linear_backward_weight has unrounded operands.
namespace trireme::kernels {

/// The dimension that a product sums over: along the rows of an operand, or down its columns.
enum class Fp8Sum : std::uint8_t { along_rows, down_columns };

/// Rounding of an operand of a product.
struct Fp8Rounding {
  Fp8 recipe = Fp8::rowwise;
  Fp8Type type = Fp8Type::e4m3;
  Fp8Sum sum = Fp8Sum::along_rows;
};

/// The values that a product multiplies in place of those of x [R, C], each times its scale: fp32 [R, C]. NaN for all
/// that share a scale with a value that is not finite. Host only.
[[nodiscard]] at::Tensor fp8_values(const at::Tensor& x, const Fp8Rounding& rounding);

/// x w^T: [N, M], of x's type. x: [N, K]; w: [M, K]. K and M are multiples of fp8_multiple.
[[nodiscard]] at::Tensor fp8_linear(Fp8 recipe, const at::Tensor& x, const at::Tensor& w);

/// d_y w: the gradient of `fp8_linear` by x, [N, K], of w's type. d_y: [N, M], of that type. tensorwise: d_y is e5m2.
[[nodiscard]] at::Tensor fp8_backward_input(Fp8 recipe, const at::Tensor& d_y, const at::Tensor& w);

}  // namespace trireme::kernels
