// SPDX-License-Identifier: Apache-2.0
#include "nn/moe.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include "nn/common.hpp"
#include "trireme/base/error.hpp"
#include "trireme/kernels/gemm.hpp"
#include "trireme/kernels/grouped.hpp"
#include "trireme/kernels/swiglu.hpp"

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

Moe::Moe(const model::Sizes& sizes, const model::Fp8Products& fp8)
    : hidden_(sizes.hidden),
      experts_(sizes.decoder.experts.value()),
      route_(sizes, fp8),
      products_(experts_.count, fp8) {
  invariant(sizes.decoder.pre_norm && !sizes.decoder.post_norm && sizes.decoder.residual_scale == 1 &&
                sizes.decoder.activation == model::Activation::swiglu,
            "experts are SwiGLU networks whose input is normed and whose output is not");
}

void Moe::expect_tokens(const at::Tensor& x, std::size_t parameters) const {
  invariant(x.defined() && x.dim() == 2 && x.size(1) == hidden_, "a stage got a tensor that is not [N, hidden]");
  invariant(parameters == this->parameters(), "a stage got another number of parameters or gradients than it has");
}

Result Moe::forward(at::Tensor hidden, std::span<const at::Tensor> parameters, const Microbatch& microbatch, Mode mode,
                    Saved& saved) const {
  const PlainOperators guard;
  expect_tokens(hidden, parameters.size());
  Route::Tokens tokens = route_.choose(hidden, parameters, microbatch, mode, saved);
  kernels::ExpertRows& by_expert = tokens.by_expert;
  const at::Tensor inputs = kernels::gather_rows(tokens.h, by_expert);
  const auto of_experts = parameters.subspan(route_.parameters());
  kernels::fetch_begin(by_expert);
  const at::Tensor gate_up_rows = products_.gate_up(inputs, by_expert.begin, of_experts);
  if (saves(mode)) saved.tensors.push_back(gate_up_rows);
  if (mode == Mode::rebuild) return {};
  const at::Tensor inner = at::empty({inputs.size(0), experts_.size}, hidden.options());
  kernels::swiglu(gate_up_rows, inner);
  const bool keeps_all = mode == Mode::train_keep_all;
  if (keeps_all) saved.tensors.push_back(inner);
  const at::Tensor scaled = keeps_all ? at::empty_like(inner) : inner;
  kernels::scale_rows(inner, tokens.weights, by_expert, scaled);
  const at::Tensor outputs = products_.down(scaled, by_expert.begin, of_experts);
  Result result{.hidden = at::empty_like(hidden)};
  kernels::sum_rows(outputs, by_expert, tokens.hidden, result.hidden);
  if (mode == Mode::evaluate || mode == Mode::infer) return result;
  for (std::size_t e = 0; e + 1 < by_expert.begin.size(); ++e)
    result.expert_tokens.push_back(by_expert.begin[e + 1] - by_expert.begin[e]);
  return result;
}

Result Moe::backward(at::Tensor d_hidden, std::span<const at::Tensor> parameters, std::span<const Grad> grads,
                     const Microbatch& microbatch, Saved saved) const {
  kernels::ExpertRows by_expert;
  Result result = input_gradient(d_hidden, parameters, microbatch, saved, by_expert);
  weight_gradients(by_expert, grads, saved);
  return result;
}

Result Moe::backward_input(at::Tensor d_hidden, std::span<const at::Tensor> parameters, const Microbatch& microbatch,
                           Saved& saved) const {
  kernels::ExpertRows by_expert;
  return input_gradient(d_hidden, parameters, microbatch, saved, by_expert);
}

void Moe::backward_weight(std::span<const Grad> grads, const Saved& saved) const {
  const PlainOperators guard;
  kernels::ExpertRows by_expert = kernels::expert_rows(saved.tensors[1], experts_.count);
  kernels::fetch_begin(by_expert);
  weight_gradients(by_expert, grads, saved);
}

Result Moe::input_gradient(const at::Tensor& d_hidden, std::span<const at::Tensor> parameters,
                           const Microbatch& microbatch, Saved& saved, kernels::ExpertRows& by_expert) const {
  const PlainOperators guard;
  expect_tokens(d_hidden, parameters.size());
  const bool all = saved.tensors.size() > route_.saves_tensors(false) + 1;
  const auto of_route = static_cast<std::ptrdiff_t>(route_.saves_tensors(all));
  const at::Tensor gate_up_rows = saved.tensors[static_cast<std::size_t>(of_route)];
  at::Tensor inner =
      all ? saved.tensors.back() : at::empty({gate_up_rows.size(0), experts_.size}, gate_up_rows.options());
  std::vector<at::Tensor> pending(saved.tensors.begin(), saved.tensors.begin() + of_route);
  saved.tensors.clear();
  by_expert = route_.rows_of(pending, microbatch.expert_tokens);
  kernels::fetch_begin(by_expert);
  const at::Tensor weights = route_.weights_of(pending), choice = Route::choice_of(pending);
  if (!all) kernels::swiglu(gate_up_rows, inner);
  const at::Tensor scaled = at::empty_like(inner);
  kernels::scale_rows(inner, weights, by_expert, scaled);
  const auto of_experts = parameters.subspan(route_.parameters());
  at::Tensor d_rows = kernels::gather_rows(d_hidden, by_expert);
  const at::Tensor d_inner = products_.backward_down(d_rows, by_expert.begin, of_experts);
  d_rows.reset();
  const at::Tensor d_weights = kernels::weight_gradients(d_inner, inner, by_expert);
  inner.reset();
  kernels::scale_rows(d_inner, weights, by_expert, d_inner);
  const at::Tensor d_gate_up = at::empty_like(gate_up_rows);
  kernels::swiglu_backward(d_inner, gate_up_rows, d_gate_up, d_inner);
  Result result = route_.backward_input(products_.backward_gate_up(d_gate_up, by_expert.begin, of_experts), d_weights,
                                        d_hidden, by_expert, parameters, microbatch, pending);
  saved.tensors = {d_hidden, choice, scaled, d_gate_up};
  saved.tensors.insert(saved.tensors.end(), pending.begin(), pending.end());
  return result;
}

void Moe::weight_gradients(const kernels::ExpertRows& by_expert, std::span<const Grad> grads,
                           const Saved& saved) const {
  const PlainOperators guard;
  const std::span<const at::Tensor> of_route = std::span(saved.tensors).subspan(4);
  const at::Tensor &d_hidden = saved.tensors[0], &scaled = saved.tensors[2], &d_gate_up = saved.tensors[3];
  products_.backward_weight(kernels::gather_rows(d_hidden, by_expert), scaled, d_gate_up,
                            kernels::gather_rows(of_route.front(), by_expert), by_expert.begin,
                            grads.subspan(route_.parameters()));
  route_.backward_weight(d_hidden, grads, of_route);
}

}  // namespace trireme::nn
