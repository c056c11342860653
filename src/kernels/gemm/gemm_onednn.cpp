// SPDX-License-Identifier: Apache-2.0
#include <ATen/core/List.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include "trireme/base/error.hpp"
#include "trireme/kernels/gemm_library.hpp"

namespace trireme::kernels {

at::Tensor onednn_product(const at::Tensor& a, const at::Tensor& b) {
  using Scalars = c10::List<std::optional<at::Scalar>>;
  using LinearPointwise =
      at::Tensor(const at::Tensor& x, const at::Tensor& w, const std::optional<at::Tensor>& bias,
                 c10::string_view attribute, Scalars scalars, std::optional<c10::string_view> algorithm);
  static const auto handle = c10::Dispatcher::singleton().findSchema({"mkldnn::_linear_pointwise", ""});
  if (!handle) {
    throw EnvironmentError(
        "this libtorch has no mkldnn::_linear_pointwise (it was built without oneDNN): choose the GEMM library \"at\"");
  }
  static const auto op = handle->typed<LinearPointwise>();
  return op.call(a, b, std::nullopt, "none", Scalars(), std::nullopt);
}

}  // namespace trireme::kernels
