// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <string_view>

#include "trireme/kernels/gemm.hpp"

/// One product of two matrices by a given library.
namespace trireme::kernels {

struct NamedLibrary {
  GemmLibrary library;
  std::string_view name;
};
/// Every library, as it is written in texts.
inline constexpr std::array<NamedLibrary, 2> gemm_libraries{{{GemmLibrary::at, "at"}, {GemmLibrary::onednn, "onednn"}}};

/// a b^T for a: [N, K], b: [M, K], either of them possibly a transposed view. Throws where `library` cannot run on this
/// CPU.
[[nodiscard]] at::Tensor product(GemmLibrary library, const at::Tensor& a, const at::Tensor& b);

/// mkldnn::_linear_pointwise(a, b): oneDNN's matmul, as libtorch's compiler calls it.
[[nodiscard]] at::Tensor onednn_product(const at::Tensor& a, const at::Tensor& b);

/// The three products of a linear layer by a given library; as the functions of the same names in gemm.hpp.
[[nodiscard]] at::Tensor linear(GemmLibrary library, const at::Tensor& x, const at::Tensor& w);
[[nodiscard]] at::Tensor linear_backward_input(GemmLibrary library, const at::Tensor& d_y, const at::Tensor& w);
void linear_backward_weight(GemmLibrary library, const at::Tensor& d_y, const at::Tensor& x, const Grad& grad);

}  // namespace trireme::kernels
