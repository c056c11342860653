// SPDX-License-Identifier: Apache-2.0
#include "nn/expert_products.hpp"

#include <ATen/ops/empty.h>

#include "nn/common.hpp"
#include "trireme/kernels/gemm.hpp"
#include "trireme/kernels/grouped.hpp"

namespace trireme::nn {

void no_gradient(const Grad& grad) {
  if (!grad.accumulate) grad.tensor.zero_();
}

at::Tensor ExpertProducts::stacked(std::span<const at::Tensor> matrices, Fp8 fp8) const {
  const at::Tensor all = fp8 == Fp8::none ? joined(matrices) : at::Tensor();
  return all.defined() ? all.view({count, all.size(0) / count, all.size(1)}) : all;
}

at::Tensor ExpertProducts::gate_up(const at::Tensor& inputs, std::span<const std::int64_t> begin,
                                   std::span<const at::Tensor> parameters) const {
  if (const at::Tensor all = stacked(gates(parameters), of_gate_up); kernels::multiplies_in_groups(inputs, all))
    return kernels::grouped_product(inputs, all.transpose(1, 2), begin);
  at::Tensor out = at::empty({inputs.size(0), 2 * parameters.front().size(0)}, inputs.options());
  for (std::size_t e = 0; e + 1 < begin.size(); ++e)
    if (begin[e] < begin[e + 1])
      out.slice(0, begin[e], begin[e + 1])
          .copy_(joint_linear(inputs.slice(0, begin[e], begin[e + 1]), parameters.subspan(2 * e, 2), of_gate_up));
  return out;
}

at::Tensor ExpertProducts::down(const at::Tensor& inner, std::span<const std::int64_t> begin,
                                std::span<const at::Tensor> parameters) const {
  if (const at::Tensor all = stacked(downs(parameters), of_down); kernels::multiplies_in_groups(inner, all))
    return kernels::grouped_product(inner, all.transpose(1, 2), begin);
  at::Tensor out = at::empty({inner.size(0), parameters[down_of(0)].size(0)}, inner.options());
  for (std::int64_t e = 0; e < count; ++e) {
    const std::int64_t first = begin[static_cast<std::size_t>(e)], last = begin[static_cast<std::size_t>(e) + 1];
    if (first < last)
      out.slice(0, first, last).copy_(kernels::linear(inner.slice(0, first, last), parameters[down_of(e)], of_down));
  }
  return out;
}

at::Tensor ExpertProducts::backward_down(const at::Tensor& d_rows, std::span<const std::int64_t> begin,
                                         std::span<const at::Tensor> parameters) const {
  if (const at::Tensor all = stacked(downs(parameters), of_down); kernels::multiplies_in_groups(d_rows, all))
    return kernels::grouped_product(d_rows, all, begin);
  at::Tensor d_inner = at::empty({d_rows.size(0), parameters[down_of(0)].size(1)}, d_rows.options());
  for (std::int64_t e = 0; e < count; ++e) {
    const std::int64_t first = begin[static_cast<std::size_t>(e)], last = begin[static_cast<std::size_t>(e) + 1];
    if (first < last)
      d_inner.slice(0, first, last)
          .copy_(kernels::linear_backward_input(d_rows.slice(0, first, last), parameters[down_of(e)], of_down));
  }
  return d_inner;
}

at::Tensor ExpertProducts::backward_gate_up(const at::Tensor& d_gate_up, std::span<const std::int64_t> begin,
                                            std::span<const at::Tensor> parameters) const {
  if (const at::Tensor all = stacked(gates(parameters), of_gate_up); kernels::multiplies_in_groups(d_gate_up, all))
    return kernels::grouped_product(d_gate_up, all, begin);
  at::Tensor d_inputs = at::empty({d_gate_up.size(0), parameters[0].size(1)}, d_gate_up.options());
  for (std::size_t e = 0; e + 1 < begin.size(); ++e)
    if (begin[e] < begin[e + 1])
      d_inputs.slice(0, begin[e], begin[e + 1])
          .copy_(joint_backward_input(d_gate_up.slice(0, begin[e], begin[e + 1]), parameters.subspan(2 * e, 2),
                                      of_gate_up));
  return d_inputs;
}

void ExpertProducts::backward_weight(const at::Tensor& d_rows, const at::Tensor& inner, const at::Tensor& d_gate_up,
                                     const at::Tensor& inputs, std::span<const std::int64_t> begin,
                                     std::span<const Grad> grads) const {
  for (std::int64_t e = 0; e < count; ++e) {
    const std::int64_t first = begin[static_cast<std::size_t>(e)], last = begin[static_cast<std::size_t>(e) + 1];
    const auto of_gate_up = grads.subspan(static_cast<std::size_t>(2 * e), 2);
    if (first == last) {
      for (const Grad& grad : of_gate_up) no_gradient(grad);
      no_gradient(grads[down_of(e)]);
      continue;
    }
    kernels::linear_backward_weight(d_rows.slice(0, first, last), inner.slice(0, first, last), grads[down_of(e)]);
    joint_backward_weight(d_gate_up.slice(0, first, last), inputs.slice(0, first, last), of_gate_up);
  }
}

}  // namespace trireme::nn
