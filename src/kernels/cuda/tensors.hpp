// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/BFloat16.h>

#include <utility>

#include "kernels/cuda/matrix.hpp"
#include "trireme/base/error.hpp"

/// Raw views of tensors on the device. The functions in trireme::kernels have checked shapes and types.
namespace trireme::kernels::cuda {

/// `t` as a matrix; none if it is undefined. T may be const.
template <class T>
Matrix<T> matrix(const at::Tensor& t) {
  if (!t.defined()) return {};
  invariant(t.dim() == 2 && (t.size(1) < 2 || t.stride(1) == 1),
            "a kernel got a tensor that is not a matrix with unit stride in its rows");
  return {.data = static_cast<T*>(t.data_ptr()), .rows = t.size(0), .width = t.size(1), .stride = t.stride(0)};
}

template <class T>
T* data(const at::Tensor& t) {
  invariant(t.is_contiguous(), "a kernel got a vector that is not contiguous");
  return static_cast<T*>(t.data_ptr());
}

/// Calls body(T{}) with the element type of `t`: float or c10::BFloat16.
template <class Body>
void with_type(const at::Tensor& t, const Body& body) {
  if (t.scalar_type() == at::kFloat) return body(float{});
  invariant(t.scalar_type() == at::kBFloat16, "a kernel got a tensor that is neither fp32 nor bf16");
  body(c10::BFloat16{});
}

}  // namespace trireme::kernels::cuda
