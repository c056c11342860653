// SPDX-License-Identifier: Apache-2.0
#include "trireme/nn/norm.hpp"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include "trireme/kernels/layer_norm.hpp"
#include "trireme/kernels/rms_norm.hpp"

namespace trireme::nn {

Norm::Output Norm::forward(const at::Tensor& x, std::span<const at::Tensor> parameters) const {
  const at::Tensor h = at::empty_like(x);
  const auto fp32 = x.options().dtype(at::kFloat);
  if (kind_ != model::NormKind::layer) {
    const at::Tensor rstd = at::empty({x.size(0)}, fp32);
    kernels::rms_norm(x, parameters[0], eps_, h, rstd, offset());
    return {h, rstd};
  }
  const at::Tensor statistics = at::empty({2, x.size(0)}, fp32);
  kernels::layer_norm(x, parameters[0], parameters[1], eps_, h, statistics);
  return {h, statistics};
}

at::Tensor Norm::again(const at::Tensor& x, std::span<const at::Tensor> parameters,
                       const at::Tensor& statistics) const {
  at::Tensor h = at::empty_like(x);
  if (kind_ != model::NormKind::layer)
    kernels::rms_norm_again(x, parameters[0], statistics, h, offset());
  else
    kernels::layer_norm_again(x, parameters[0], parameters[1], statistics, h);
  return h;
}

at::Tensor Norm::backward(const at::Tensor& d_h, const at::Tensor& x, std::span<const at::Tensor> parameters,
                          const at::Tensor& statistics, const at::Tensor& d_residual,
                          std::span<const kernels::Grad> grads) const {
  if (kind_ != model::NormKind::layer)
    kernels::rms_norm_backward(d_h, x, parameters[0], statistics, d_residual, d_h, grads[0], offset());
  else
    kernels::layer_norm_backward(d_h, x, parameters[0], statistics, d_residual, d_h, grads[0], grads[1]);
  return d_h;
}

at::Tensor Norm::backward_input(const at::Tensor& d_h, const at::Tensor& x, std::span<const at::Tensor> parameters,
                                const at::Tensor& statistics, const at::Tensor& d_residual,
                                std::vector<at::Tensor>& d_parameters) const {
  std::vector<kernels::Grad> grads;
  for (std::size_t i = 0; i < this->parameters(); ++i)
    grads.push_back({.tensor = at::empty({x.size(1)}, x.options().dtype(at::kFloat)), .accumulate = false});
  for (const kernels::Grad& grad : grads) d_parameters.push_back(grad.tensor);
  return backward(d_h, x, parameters, statistics, d_residual, grads);
}

void put_gradients(std::span<const at::Tensor> gradients, std::span<const kernels::Grad> to) {
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    if (to[i].accumulate)
      to[i].tensor.add_(gradients[i]);
    else
      to[i].tensor.copy_(gradients[i]);
  }
}

}  // namespace trireme::nn
