// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/exp2.h>
#include <ATen/ops/randn.h>

#include <array>

#include "trireme/kernels/fp8.hpp"

/// Operands of fp8 products, for the tests of the host and of a device.
namespace trireme::kernels::fp8_operands {

constexpr std::array recipes = {Fp8::rowwise, Fp8::mx, Fp8::tensorwise};

/// Numbers over many powers of two, so that every part of a type's range is met: subnormal ones, too.
inline at::Tensor wide(at::IntArrayRef shape, at::ScalarType type) {
  return (at::randn(shape) * at::exp2(6 * at::randn(shape))).to(type);
}

/// Every recipe, type and summed dimension.
template <class Body>
void for_each_rounding(const Body& body) {
  for (const Fp8 recipe : recipes)
    for (const Fp8Type type : {Fp8Type::e4m3, Fp8Type::e5m2})
      for (const Fp8Sum sum : {Fp8Sum::along_rows, Fp8Sum::down_columns})
        body(Fp8Rounding{.recipe = recipe, .type = type, .sum = sum});
}

}  // namespace trireme::kernels::fp8_operands
