// SPDX-License-Identifier: Apache-2.0
#include "trireme/nn/experts.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include "nn/common.hpp"
#include "nn/moe.hpp"
#include "trireme/base/error.hpp"
#include "trireme/kernels/gemm.hpp"
#include "trireme/kernels/swiglu.hpp"

namespace trireme::nn {
namespace {

/// Rows that are the elements of a choice of one expert for each: row i is element i.
kernels::ExpertRows one_by_one(std::int64_t rows, const at::TensorOptions& options) {
  const at::Tensor same = at::arange(rows, options.dtype(at::kInt));
  return {.begin = {}, .choice = same, .place = same.view({rows, 1})};
}

}  // namespace

Route::Route(const model::Sizes& sizes)
    : experts_(sizes.decoder.experts.value()), norm_(sizes), router_(norm_.parameters()) {}

Route::Rows Route::forward(const at::Tensor& x, std::span<const at::Tensor> parameters, Mode mode, Saved& saved) const {
  const PlainOperators guard;
  const auto [h, statistics] = norm_.forward(x, parameters);
  const at::Tensor logits = kernels::linear(h.to(at::kFloat), parameters[router_].to(at::kFloat));
  const at::Tensor choice =
      saved.tensors.empty() ? kernels::choose_experts(logits, experts_.per_token) : saved.tensors.front();
  saved.tensors.clear();
  if (saves(mode)) saved.tensors = {x, statistics, logits, choice};
  if (mode == Mode::train_keep_all) saved.tensors.push_back(h);
  if (mode == Mode::decide) saved.tensors = {choice};
  Rows out{.rows = {},
           .weights = kernels::expert_weights(logits, choice, experts_.normalized),
           .by_expert = kernels::expert_rows(choice, experts_.count)};
  out.weights = out.weights.view({-1}).index_select(0, out.by_expert.choice);
  out.rows = kernels::gather_rows(h, out.by_expert);
  return out;
}

kernels::ExpertRows Route::rows_of(const std::vector<at::Tensor>& saved) const {
  const PlainOperators guard;
  return kernels::expert_rows(saved.at(3), experts_.count);
}

Result Route::backward(const at::Tensor& d_rows, const at::Tensor& d_weights, const at::Tensor& d_hidden,
                       const kernels::ExpertRows& by_expert, std::span<const at::Tensor> parameters,
                       std::span<const Grad> grads, const Microbatch& microbatch,
                       const std::vector<at::Tensor>& saved) const {
  const PlainOperators guard;
  const at::Tensor &x = saved[0], &statistics = saved[1], &logits = saved[2], &choice = saved[3];
  const at::Tensor h = saved.size() > 4 ? saved[4] : norm_.again(x, parameters, statistics);
  const at::Tensor d_choice = d_weights.index_select(0, by_expert.place.view({-1})).view(choice.sizes());
  const at::Tensor d_logits = at::empty_like(logits);
  const auto [balance, z] =
      kernels::router_backward(d_choice, logits, choice, microbatch.seq_len, experts_.normalized,
                               {.balance = microbatch.balance_scale, .z = microbatch.router_z_scale}, d_logits);
  kernels::linear_backward_weight(d_logits, h, grads[router_]);
  const at::Tensor through_router = kernels::linear_backward_input(d_logits, parameters[router_]);
  const at::Tensor d_h = at::empty_like(h);
  kernels::sum_rows(d_rows, by_expert, through_router, d_h);
  return {.hidden = norm_.backward(d_h, x, parameters, statistics, d_hidden, grads),
          .balance_loss = balance,
          .router_z_loss = z};
}

HeldExperts::HeldExperts(const model::Sizes& sizes, const model::ExpertPart& part)
    : size_(sizes.decoder.experts.value().size),
      held_(part.held(sizes.decoder.experts->count)),
      first_(static_cast<std::size_t>(3 * held_ * part.rank)) {}

at::Tensor HeldExperts::forward(const at::Tensor& rows, const at::Tensor& weights, std::span<const std::int64_t> begin,
                                std::span<const at::Tensor> parameters, Mode mode, Saved& saved) const {
  const PlainOperators guard;
  const ExpertProducts products{held_};
  const auto mine = parameters.subspan(first_, static_cast<std::size_t>(3 * held_));
  const at::Tensor gate_up = at::empty({rows.size(0), 2 * size_}, rows.options());
  products.gate_up(rows, begin, mine, gate_up);
  if (saves(mode)) saved.tensors = {rows, weights, gate_up};
  if (mode == Mode::rebuild) return {};
  const at::Tensor inner = at::empty({rows.size(0), size_}, rows.options());
  kernels::swiglu(gate_up, inner);
  const bool keeps_all = mode == Mode::train_keep_all;
  if (keeps_all) saved.tensors.push_back(inner);
  const at::Tensor scaled = keeps_all ? at::empty_like(inner) : inner;
  kernels::scale_rows(inner, weights, one_by_one(rows.size(0), rows.options()), scaled);
  at::Tensor out = at::empty_like(rows);
  products.down(scaled, begin, mine, out);
  return out;
}

HeldExperts::Gradients HeldExperts::backward(const at::Tensor& d_out, std::span<const std::int64_t> begin,
                                             std::span<const at::Tensor> parameters, std::span<const Grad> grads,
                                             std::vector<at::Tensor> saved) const {
  const PlainOperators guard;
  const ExpertProducts products{held_};
  const auto mine = parameters.subspan(first_, static_cast<std::size_t>(3 * held_));
  const auto d_mine = grads.subspan(first_, static_cast<std::size_t>(3 * held_));
  const at::Tensor rows = saved[0], weights = saved[1], gate_up = saved[2];
  const kernels::ExpertRows same = one_by_one(rows.size(0), rows.options());
  at::Tensor inner = saved.size() > 3 ? saved[3] : at::empty({rows.size(0), size_}, rows.options());
  if (saved.size() == 3) kernels::swiglu(gate_up, inner);
  saved.clear();
  const at::Tensor scaled = at::empty_like(inner);
  kernels::scale_rows(inner, weights, same, scaled);
  const at::Tensor d_inner = products.backward_down(d_out, scaled, begin, mine, d_mine);
  at::Tensor d_weights = kernels::weight_gradients(d_inner, inner, same).view({-1});
  inner.reset();
  kernels::scale_rows(d_inner, weights, same, d_inner);
  const at::Tensor d_gate_up = at::empty_like(gate_up);
  kernels::swiglu_backward(d_inner, gate_up, d_gate_up, scaled);
  return {.rows = products.backward_gate_up(d_gate_up, rows, begin, mine, d_mine), .weights = std::move(d_weights)};
}

}  // namespace trireme::nn
