// SPDX-License-Identifier: Apache-2.0
#include "nn/moe.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include "nn/common.hpp"
#include "trireme/base/error.hpp"
#include "trireme/kernels/gemm.hpp"
#include "trireme/kernels/swiglu.hpp"

namespace trireme::nn {

void no_gradient(const Grad& grad) {
  if (!grad.accumulate) grad.tensor.zero_();
}

void ExpertProducts::gate_up(const at::Tensor& inputs, std::span<const std::int64_t> begin,
                             std::span<const at::Tensor> parameters, const at::Tensor& out) const {
  for (std::size_t e = 0; e + 1 < begin.size(); ++e)
    if (begin[e] < begin[e + 1])
      out.slice(0, begin[e], begin[e + 1])
          .copy_(joint_linear(inputs.slice(0, begin[e], begin[e + 1]), parameters.subspan(2 * e, 2)));
}

void ExpertProducts::down(const at::Tensor& inner, std::span<const std::int64_t> begin,
                          std::span<const at::Tensor> parameters, const at::Tensor& out) const {
  for (std::int64_t e = 0; e < count; ++e) {
    const std::int64_t first = begin[static_cast<std::size_t>(e)], last = begin[static_cast<std::size_t>(e) + 1];
    if (first < last)
      out.slice(0, first, last).copy_(kernels::linear(inner.slice(0, first, last), parameters[down_of(e)]));
  }
}

at::Tensor ExpertProducts::backward_down(const at::Tensor& d_rows, const at::Tensor& inner,
                                         std::span<const std::int64_t> begin, std::span<const at::Tensor> parameters,
                                         std::span<const Grad> grads) const {
  at::Tensor d_inner = at::empty_like(inner);
  for (std::int64_t e = 0; e < count; ++e) {
    const std::int64_t first = begin[static_cast<std::size_t>(e)], last = begin[static_cast<std::size_t>(e) + 1];
    if (first == last) {
      no_gradient(grads[down_of(e)]);
      continue;
    }
    const at::Tensor d_y = d_rows.slice(0, first, last);
    d_inner.slice(0, first, last).copy_(kernels::linear_backward_input(d_y, parameters[down_of(e)]));
    kernels::linear_backward_weight(d_y, inner.slice(0, first, last), grads[down_of(e)]);
  }
  return d_inner;
}

at::Tensor ExpertProducts::backward_gate_up(const at::Tensor& d_gate_up, const at::Tensor& inputs,
                                            std::span<const std::int64_t> begin, std::span<const at::Tensor> parameters,
                                            std::span<const Grad> grads) const {
  at::Tensor d_inputs = at::empty_like(inputs);
  for (std::size_t e = 0; e + 1 < begin.size(); ++e) {
    const auto of_expert = grads.subspan(2 * e, 2);
    if (begin[e] == begin[e + 1]) {
      for (const Grad& grad : of_expert) no_gradient(grad);
      continue;
    }
    const at::Tensor d = d_gate_up.slice(0, begin[e], begin[e + 1]);
    d_inputs.slice(0, begin[e], begin[e + 1]).copy_(joint_backward_input(d, parameters.subspan(2 * e, 2)));
    joint_backward_weight(d, inputs.slice(0, begin[e], begin[e + 1]), of_expert);
  }
  return d_inputs;
}

Moe::Moe(const model::Sizes& sizes)
    : hidden_(sizes.hidden), experts_(sizes.decoder.experts.value()), route_(sizes), products_{experts_.count} {
  invariant(sizes.decoder.pre_norm && !sizes.decoder.post_norm && sizes.decoder.residual_scale == 1 &&
                sizes.decoder.activation == model::Activation::swiglu,
            "experts are SwiGLU networks whose input is normed and whose output is not");
}

Result Moe::forward(at::Tensor hidden, std::span<const at::Tensor> parameters, const Microbatch& microbatch, Mode mode,
                    Saved& saved) const {
  const PlainOperators guard;
  expect_call(hidden, microbatch, hidden_, parameters.size(), this->parameters());
  Route::Tokens tokens = route_.choose(hidden, parameters, microbatch, mode, saved);
  const kernels::ExpertRows& by_expert = tokens.by_expert;
  const at::Tensor inputs = kernels::gather_rows(tokens.h, by_expert);
  const at::Tensor gate_up_rows = at::empty({inputs.size(0), 2 * experts_.size}, hidden.options());
  const auto of_experts = parameters.subspan(route_.parameters());
  products_.gate_up(inputs, by_expert.begin, of_experts, gate_up_rows);
  if (saves(mode)) saved.tensors.push_back(gate_up_rows);
  if (mode == Mode::rebuild) return {};
  const at::Tensor inner = at::empty({inputs.size(0), experts_.size}, hidden.options());
  kernels::swiglu(gate_up_rows, inner);
  const bool keeps_all = mode == Mode::train_keep_all;
  if (keeps_all) saved.tensors.push_back(inner);
  const at::Tensor scaled = keeps_all ? at::empty_like(inner) : inner;
  kernels::scale_rows(inner, tokens.weights, by_expert, scaled);
  const at::Tensor outputs = at::empty_like(inputs);
  products_.down(scaled, by_expert.begin, of_experts, outputs);
  Result result{.hidden = at::empty_like(hidden)};
  kernels::sum_rows(outputs, by_expert, tokens.hidden, result.hidden);
  if (mode == Mode::evaluate || mode == Mode::infer) return result;
  for (std::size_t e = 0; e + 1 < by_expert.begin.size(); ++e)
    result.expert_tokens.push_back(by_expert.begin[e + 1] - by_expert.begin[e]);
  return result;
}

Result Moe::backward(at::Tensor d_hidden, std::span<const at::Tensor> parameters, std::span<const Grad> grads,
                     const Microbatch& microbatch, Saved saved) const {
  const PlainOperators guard;
  expect_call(d_hidden, microbatch, hidden_, parameters.size(), grads.size());
  const bool all = saved.tensors.size() > route_.saves_tensors(false) + 1;
  const auto of_route = static_cast<std::ptrdiff_t>(route_.saves_tensors(all));
  const at::Tensor gate_up_rows = saved.tensors[static_cast<std::size_t>(of_route)];
  at::Tensor inner =
      all ? saved.tensors.back() : at::empty({gate_up_rows.size(0), experts_.size}, gate_up_rows.options());
  saved.tensors.erase(saved.tensors.begin() + of_route, saved.tensors.end());
  const kernels::ExpertRows by_expert = route_.rows_of(saved.tensors);
  const at::Tensor weights = route_.weights_of(saved.tensors);
  if (!all) kernels::swiglu(gate_up_rows, inner);
  const at::Tensor scaled = at::empty_like(inner);
  kernels::scale_rows(inner, weights, by_expert, scaled);
  const auto of_experts = parameters.subspan(route_.parameters());
  const auto d_experts = grads.subspan(route_.parameters());
  const at::Tensor d_inner = products_.backward_down(kernels::gather_rows(d_hidden, by_expert), scaled, by_expert.begin,
                                                     of_experts, d_experts);
  const at::Tensor d_weights = kernels::weight_gradients(d_inner, inner, by_expert);
  inner.reset();
  kernels::scale_rows(d_inner, weights, by_expert, d_inner);
  const at::Tensor d_gate_up = at::empty_like(gate_up_rows);
  kernels::swiglu_backward(d_inner, gate_up_rows, d_gate_up, scaled);
  const at::Tensor h = route_.normed(parameters, saved.tensors);
  const at::Tensor d_inputs =
      products_.backward_gate_up(d_gate_up, kernels::gather_rows(h, by_expert), by_expert.begin, of_experts, d_experts);
  return route_.backward(d_inputs, d_weights, d_hidden, by_expert, parameters, grads, microbatch, saved.tensors);
}

}  // namespace trireme::nn
