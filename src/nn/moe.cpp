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

/// Calls body(e, begin, end) for the experts that have rows.
template <class Body>
void each_expert(const kernels::ExpertRows& rows, const Body& body) {
  for (std::size_t e = 0; e + 1 < rows.begin.size(); ++e)
    if (rows.begin[e] < rows.begin[e + 1]) body(static_cast<std::int64_t>(e), rows.begin[e], rows.begin[e + 1]);
}

/// The gradient by the weights of an expert without rows: it is written all the same.
void no_gradient(const Grad& grad) {
  if (!grad.accumulate) grad.tensor.zero_();
}

}  // namespace

Moe::Moe(const model::Sizes& sizes)
    : hidden_(sizes.hidden), experts_(sizes.decoder.experts.value()), norm_(sizes), router_(norm_.parameters()) {
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
  expect_call(hidden, microbatch, hidden_, parameters.size(), down(experts_.count));
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
  each_expert(by_expert, [&](std::int64_t e, std::int64_t begin, std::int64_t end) {
    gate_up_rows.slice(0, begin, end)
        .copy_(joint_linear(inputs.slice(0, begin, end), parameters.subspan(gate_up(e), 2)));
  });
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
  each_expert(by_expert, [&](std::int64_t e, std::int64_t begin, std::int64_t end) {
    outputs.slice(0, begin, end).copy_(kernels::linear(scaled.slice(0, begin, end), parameters[down(e)]));
  });
  Result result{.hidden = at::empty_like(hidden)};
  kernels::sum_rows(outputs, by_expert, hidden, result.hidden);
  if (mode == Mode::evaluate || mode == Mode::infer) return result;
  for (std::size_t e = 0; e + 1 < by_expert.begin.size(); ++e)
    result.expert_tokens.push_back(by_expert.begin[e + 1] - by_expert.begin[e]);
  return result;
}

at::Tensor Moe::backward_down(const at::Tensor& d_rows, const at::Tensor& scaled,
                              std::span<const at::Tensor> parameters, std::span<const Grad> grads,
                              const kernels::ExpertRows& rows) const {
  at::Tensor d_scaled = at::empty_like(scaled);
  for (std::int64_t e = 0; e < experts_.count; ++e) {
    const std::int64_t begin = rows.begin[static_cast<std::size_t>(e)],
                       end = rows.begin[static_cast<std::size_t>(e) + 1];
    if (begin == end) {
      no_gradient(grads[down(e)]);
      continue;
    }
    const at::Tensor d_y = d_rows.slice(0, begin, end);
    d_scaled.slice(0, begin, end).copy_(kernels::linear_backward_input(d_y, parameters[down(e)]));
    kernels::linear_backward_weight(d_y, scaled.slice(0, begin, end), grads[down(e)]);
  }
  return d_scaled;
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
  const at::Tensor d_inner =
      backward_down(kernels::gather_rows(d_hidden, by_expert), scaled, parameters, grads, by_expert);
  const at::Tensor d_weights = kernels::weight_gradients(d_inner, inner, by_expert);
  inner.reset();
  kernels::scale_rows(d_inner, rows.weights, by_expert, d_inner);
  const at::Tensor d_gate_up = at::empty_like(gate_up_rows);
  kernels::swiglu_backward(d_inner, gate_up_rows, d_gate_up, scaled);

  const at::Tensor inputs = kernels::gather_rows(h, by_expert);
  const at::Tensor d_inputs = at::empty_like(inputs);
  for (std::int64_t e = 0; e < experts_.count; ++e) {
    const auto of_expert = grads.subspan(gate_up(e), 2);
    const std::int64_t begin = by_expert.begin[static_cast<std::size_t>(e)];
    const std::int64_t end = by_expert.begin[static_cast<std::size_t>(e) + 1];
    if (begin == end) {
      for (const Grad& grad : of_expert) no_gradient(grad);
      continue;
    }
    const at::Tensor d = d_gate_up.slice(0, begin, end);
    d_inputs.slice(0, begin, end).copy_(joint_backward_input(d, parameters.subspan(gate_up(e), 2)));
    joint_backward_weight(d, inputs.slice(0, begin, end), of_expert);
  }

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
