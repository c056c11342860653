// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <string>
#include <string_view>

#include "trireme/kernels/gemm.hpp"

/// Matrix products by a given library.
namespace trireme::kernels {

struct NamedLibrary {
  GemmLibrary library;
  std::string_view name;
};
/// All libraries with their names in texts.
inline constexpr std::array<NamedLibrary, 3> gemm_libraries{
    {{GemmLibrary::at, "at"}, {GemmLibrary::onednn, "onednn"}, {GemmLibrary::blocked, "blocked"}}};

/// mkldnn::_linear_pointwise(a, b): oneDNN's matmul, as libtorch's compiler calls it.
[[nodiscard]] at::Tensor onednn_product(const at::Tensor& a, const at::Tensor& b);

/// Counted up when their measurement or the blocked products change: choices measured before are measured again.
inline constexpr int libraries_version = 7;
/// Inputs of a choice in addition to the CPU and libtorch: that version, and the threads of libtorch's products and
/// ours.
[[nodiscard]] std::string measured_with();

/// Our library: fp32 arithmetic for every data type, except for gradients of bf16 weights with `pairs`: products of
/// bf16, summed in fp32; only if can_multiply_pairs(). residual: undefined for none. The other two as
/// linear_backward_input and linear_backward_weight.
[[nodiscard]] at::Tensor blocked_linear(const at::Tensor& x, const at::Tensor& w, const at::Tensor& residual);
[[nodiscard]] at::Tensor blocked_linear_wide(const at::Tensor& x, const at::Tensor& w);
[[nodiscard]] at::Tensor blocked_backward_input(const at::Tensor& d_y, const at::Tensor& w);
void blocked_backward_weight(const at::Tensor& d_y, const at::Tensor& x, const Grad& grad, bool pairs);

/// The products of a linear layer by a given library, as the functions of the same names in gemm.hpp. They throw where
/// it cannot run on this CPU.
[[nodiscard]] at::Tensor linear(GemmLibrary library, const at::Tensor& x, const at::Tensor& w);
[[nodiscard]] at::Tensor linear_add(GemmLibrary library, const at::Tensor& x, const at::Tensor& w,
                                    const at::Tensor& residual);
[[nodiscard]] at::Tensor linear_backward_input(GemmLibrary library, const at::Tensor& d_y, const at::Tensor& w);
void linear_backward_weight(GemmLibrary library, const at::Tensor& d_y, const at::Tensor& x, const Grad& grad);

/// Whether it can run on this CPU, for operands of `type`: it is tried.
[[nodiscard]] bool runs_here(GemmLibrary library, at::ScalarType type);

}  // namespace trireme::kernels
