// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/BFloat16.h>

#include <bit>
#include <cstdint>
#include <utility>

#include "trireme/base/error.hpp"

/// Raw views of tensors.
namespace trireme::kernels {

/// fp32 and bf16 in memory, fp32 in registers. `put` rounds to nearest, ties to even; written so that plain loops
/// vectorise.
inline float get(float x) { return x; }
inline float get(c10::BFloat16 x) { return std::bit_cast<float>(static_cast<std::uint32_t>(x.x) << 16); }
inline void put(float& to, float x) { to = x; }
inline void put(c10::BFloat16& to, float x) {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  const std::uint32_t rounded = (bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16;
  const std::uint32_t quiet = (bits >> 16) | 0x40U;
  const bool nan = (bits & 0x7fffffffU) > 0x7f800000U;
  to.x = static_cast<std::uint16_t>(nan ? quiet : rounded);
}

/// A matrix whose rows may be apart.
template <class T>
struct Rows {
  T* data;
  std::int64_t count, width, stride;
  T* operator[](std::int64_t row) const { return data + row * stride; }
};

template <class T>
Rows<T> rows(const at::Tensor& t) {
  invariant(t.dim() == 2 && (t.size(1) == 1 || t.stride(1) == 1),
            "a kernel got a tensor that is not a matrix with unit stride in its rows");
  return {.data = static_cast<T*>(t.data_ptr()), .count = t.size(0), .width = t.size(1), .stride = t.stride(0)};
}

/// Calls body(T{}) with the element type of `t`: float or c10::BFloat16.
template <class Body>
decltype(auto) with_type(const at::Tensor& t, Body&& body) {
  invariant(t.device().is_cpu(), "a host kernel got a tensor of another device");
  if (t.scalar_type() == at::kFloat) return std::forward<Body>(body)(float{});
  invariant(t.scalar_type() == at::kBFloat16, "a kernel got a tensor that is neither fp32 nor bf16");
  return std::forward<Body>(body)(c10::BFloat16{});
}

inline void expect_shape(const at::Tensor& t, at::IntArrayRef shape, at::ScalarType type, const char* what) {
  invariant(t.defined() && t.sizes() == shape && t.scalar_type() == type, what);
}

}  // namespace trireme::kernels
