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
namespace {

/// The gradient by the weights of an expert without rows: it is written all the same.
void no_gradient(const Grad& grad) {
  if (!grad.accumulate) grad.tensor.zero_();
}

}  // namespace

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
    : hidden_(sizes.hidden),
      experts_(sizes.decoder.experts.value()),
      norm_(sizes),
      router_(norm_.parameters()),
      products_{experts_.count} {
  invariant(sizes.decoder.pre_norm && !sizes.decoder.post_norm && sizes.decoder.residual_scale == 1 &&
                sizes.decoder.activation == model::Activation::swiglu,
            "experts are SwiGLU networks whose input is normed and whose output is not");
}

Moe::Rows Moe::rows_of(const at::Tensor& logits, const at::Tensor& choice) const {
  return {.choice = choice,
          .weights = kernels::expert_weights(logits, choice, experts_.normalized),
          .by_expert = kernels::expert_rows(choice, experts_.count)};
}

Result Moe::forward(at::Tensor hidden, std::span<const at::Tensor> parameters, const Microbatch& microbatch, Mode mode,
                    Saved& saved) const {
  const PlainOperators guard;
  expect_call(hidden, microbatch, hidden_, parameters.size(), this->parameters());
  const auto [h, statistics] = norm_.forward(hidden, parameters);
  const at::Tensor logits = kernels::linear(h.to(at::kFloat), parameters[router_].to(at::kFloat));
  const bool decided = !saved.tensors.empty();
  invariant(decided || mode != Mode::rebuild, "experts are chosen once: a layer that runs again is given its choice");
  const Rows rows =
      rows_of(logits, decided ? saved.tensors.front() : kernels::choose_experts(logits, experts_.per_token));
  saved.tensors.clear();
  const kernels::ExpertRows& by_expert = rows.by_expert;
  const at::Tensor inputs = kernels::gather_rows(h, by_expert);
  const at::Tensor gate_up_rows = at::empty({inputs.size(0), 2 * experts_.size}, h.options());
  const auto of_experts = parameters.subspan(router_ + 1);
  products_.gate_up(inputs, by_expert.begin, of_experts, gate_up_rows);
  if (saves(mode)) saved.tensors = {hidden, statistics, logits, rows.choice, gate_up_rows};
  if (mode == Mode::decide) saved.tensors = {rows.choice};
  if (mode == Mode::rebuild) return {};
  const at::Tensor inner = at::empty({inputs.size(0), experts_.size}, h.options());
  kernels::swiglu(gate_up_rows, inner);
  const bool keeps_all = mode == Mode::train_keep_all;
  if (keeps_all) saved.tensors.insert(saved.tensors.end(), {inner, h});
  const at::Tensor scaled = keeps_all ? at::empty_like(inner) : inner;
  kernels::scale_rows(inner, rows.weights, by_expert, scaled);
  const at::Tensor outputs = at::empty_like(inputs);
  products_.down(scaled, by_expert.begin, of_experts, outputs);
  Result result{.hidden = at::empty_like(hidden)};
  kernels::sum_rows(outputs, by_expert, hidden, result.hidden);
  if (mode == Mode::evaluate || mode == Mode::infer) return result;
  for (std::size_t e = 0; e + 1 < by_expert.begin.size(); ++e)
    result.expert_tokens.push_back(by_expert.begin[e + 1] - by_expert.begin[e]);
  return result;
}

Result Moe::backward(at::Tensor d_hidden, std::span<const at::Tensor> parameters, std::span<const Grad> grads,
                     const Microbatch& microbatch, Saved saved) const {
  const PlainOperators guard;
  expect_call(d_hidden, microbatch, hidden_, parameters.size(), grads.size());
  const at::Tensor x = saved.tensors[0], statistics = saved.tensors[1], logits = saved.tensors[2];
  const at::Tensor gate_up_rows = saved.tensors[4];
  const bool all = saved.tensors.size() > 5;
  const Rows rows = rows_of(logits, saved.tensors[3]);
  const kernels::ExpertRows& by_expert = rows.by_expert;
  at::Tensor inner = all ? saved.tensors[5] : at::empty({gate_up_rows.size(0), experts_.size}, x.options());
  const at::Tensor h = all ? saved.tensors[6] : norm_.again(x, parameters, statistics);
  saved.tensors.clear();
  if (!all) kernels::swiglu(gate_up_rows, inner);
  const at::Tensor scaled = at::empty_like(inner);
  kernels::scale_rows(inner, rows.weights, by_expert, scaled);
  const auto of_experts = parameters.subspan(router_ + 1);
  const auto d_experts = grads.subspan(router_ + 1);
  const at::Tensor d_inner = products_.backward_down(kernels::gather_rows(d_hidden, by_expert), scaled, by_expert.begin,
                                                     of_experts, d_experts);
  const at::Tensor d_weights = kernels::weight_gradients(d_inner, inner, by_expert);
  inner.reset();
  kernels::scale_rows(d_inner, rows.weights, by_expert, d_inner);
  const at::Tensor d_gate_up = at::empty_like(gate_up_rows);
  kernels::swiglu_backward(d_inner, gate_up_rows, d_gate_up, scaled);

  const at::Tensor d_inputs =
      products_.backward_gate_up(d_gate_up, kernels::gather_rows(h, by_expert), by_expert.begin, of_experts, d_experts);

  const at::Tensor d_logits = at::empty_like(logits);
  const auto [balance, z] =
      kernels::router_backward(d_weights, logits, rows.choice, microbatch.seq_len, experts_.normalized,
                               {.balance = microbatch.balance_scale, .z = microbatch.router_z_scale}, d_logits);
  kernels::linear_backward_weight(d_logits, h, grads[router_]);
  const at::Tensor through_router = kernels::linear_backward_input(d_logits, parameters[router_]);
  const at::Tensor d_h = at::empty_like(h);
  kernels::sum_rows(d_inputs, by_expert, through_router, d_h);
  return {.hidden = norm_.backward(d_h, x, parameters, statistics, d_hidden, grads),
          .balance_loss = balance,
          .router_z_loss = z};
}

}  // namespace trireme::nn
