// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "trireme/base/fp8.hpp"

/// fp8 products from their definition (OCP 8-bit floating point and Microscaling Formats, 2023; docs/numerics.md): the
/// oracle of the emulated and the device's ones, and what the plain program multiplies by.
namespace trireme::test {

struct PlainRounding {
  Fp8 recipe = Fp8::rowwise;
  bool e5m2 = false;
  bool down_columns = false;  ///< the product sums over the rows of x, not along them
};

/// The values of x [R, C] as a product multiplies them, of x's type. Every element is looked up in the table of what
/// the type can represent.
[[nodiscard]] at::Tensor plain_fp8_values(const at::Tensor& x, const PlainRounding& rounding);

/// x w^T, with the gradient by x from rounded operands and that by w from x and the gradient as they are. x: [..., K].
[[nodiscard]] at::Tensor plain_fp8_product(const at::Tensor& x, const at::Tensor& w, Fp8 recipe);

/// Products of the plain program in fp8, with tensor ranks' partitions of the summed dimension.
struct PlainFp8 {
  Fp8 recipe = Fp8::none;
  std::vector<std::string> skip{};
  std::int64_t tensor = 1;

  /// Whether the product with the weight of this name is one of them.
  [[nodiscard]] bool takes(const std::string& weight) const;
};

/// The outputs of linear layers of x, which are one product on every tensor rank, of its part of each. units: what an
/// output is divided by over ranks; with fewer of them than ranks neighbours have a copy each, which all are in the
/// output. biases: undefined for none.
[[nodiscard]] std::vector<at::Tensor> plain_fp8_joint(const at::Tensor& x, const std::vector<at::Tensor>& weights,
                                                      const std::vector<at::Tensor>& biases,
                                                      const std::vector<std::int64_t>& units, const PlainFp8& fp8);

/// x w^T where every tensor rank has a part of the columns of both: the sum of their products.
[[nodiscard]] at::Tensor plain_fp8_sum(const at::Tensor& x, const at::Tensor& w, const PlainFp8& fp8);

}  // namespace trireme::test
