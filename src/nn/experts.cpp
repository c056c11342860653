// SPDX-License-Identifier: Apache-2.0
#include "trireme/nn/experts.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include "nn/common.hpp"
#include "nn/moe.hpp"
#include "trireme/base/error.hpp"
#include "trireme/kernels/gemm.hpp"
#include "trireme/kernels/swiglu.hpp"

namespace trireme::nn {
namespace {

/// values[order[i]] for every i.
at::Tensor in_order(const at::Tensor& values, const at::Tensor& order) {
  const kernels::ExpertRows rows{.begin = {}, .choice = order, .place = order.view({-1, 1})};
  return kernels::gather_rows(values.view({-1, 1}), rows).view({-1});
}

}  // namespace

Route::Route(const model::Sizes& sizes, model::Fp8Products fp8)
    : experts_(sizes.decoder.experts.value()), fp8_(std::move(fp8)), norm_(sizes), router_(norm_.parameters()) {}

std::size_t Route::parameters() const { return shared() + (shares() ? SharedExpert(experts_, fp8_).parameters() : 0); }

std::size_t Route::saves_tensors(bool all) const {
  const std::size_t kept = all ? (shares() ? 2 : 1) : 0;
  return 4 + (shares() ? SharedExpert(experts_, fp8_).products() : 0) + kept;
}

Route::Tokens Route::choose(const at::Tensor& x, std::span<const at::Tensor> parameters, const Microbatch& microbatch,
                            Mode mode, Saved& saved) const {
  const PlainOperators guard;
  const auto [h, statistics] = norm_.forward(x, parameters);
  const at::Tensor logits = kernels::linear(h.to(at::kFloat), parameters[router_].to(at::kFloat));
  const bool decided = !saved.tensors.empty();
  invariant(decided || mode != Mode::rebuild, "experts are chosen once: a layer that runs again is given its choice");
  invariant(decided || microbatch.choice_bias.defined() == experts_.choice_bias,
            "a layer with a correction bias is given it");
  const at::Tensor choice =
      decided ? saved.tensors.front() : kernels::choose_experts(logits, experts_, microbatch.choice_bias);
  saved.tensors.clear();
  if (saves(mode)) saved.tensors = {x, statistics, logits, choice};
  Tokens out{.h = h,
             .hidden = x,
             .weights = kernels::expert_weights(logits, choice, experts_),
             .by_expert = kernels::expert_rows(choice, experts_.count, microbatch.expert_tokens)};
  std::vector<at::Tensor> kept{h};
  if (shares())
    out.hidden = SharedExpert(experts_, fp8_)
                     .forward(h, x, parameters.subspan(shared(), SharedExpert(experts_, fp8_).parameters()), mode,
                              saved.tensors, kept);
  if (mode == Mode::train_keep_all) saved.tensors.insert(saved.tensors.end(), kept.begin(), kept.end());
  if (mode == Mode::decide) saved.tensors = {choice};
  return out;
}

Route::Rows Route::forward(const at::Tensor& x, std::span<const at::Tensor> parameters, const Microbatch& microbatch,
                           Mode mode, Saved& saved) const {
  const PlainOperators guard;
  Tokens tokens = choose(x, parameters, microbatch, mode, saved);
  Rows out{.rows = kernels::gather_rows(tokens.h, tokens.by_expert),
           .weights = in_order(tokens.weights, tokens.by_expert.choice),
           .hidden = std::move(tokens.hidden),
           .by_expert = {}};
  out.by_expert = std::move(tokens.by_expert);
  return out;
}

kernels::ExpertRows Route::rows_of(std::span<const at::Tensor> saved, std::span<const std::int64_t> tokens) const {
  const PlainOperators guard;
  return kernels::expert_rows(saved[3], experts_.count, tokens);
}

at::Tensor Route::weights_of(std::span<const at::Tensor> saved) const {
  const PlainOperators guard;
  return kernels::expert_weights(saved[2], saved[3], experts_);
}

at::Tensor Route::normed(std::span<const at::Tensor> parameters, std::span<const at::Tensor> saved) const {
  const std::size_t products = saves_tensors(false);
  return saved.size() > products ? saved[products] : norm_.again(saved[0], parameters, saved[1]);
}

Result Route::backward_input(const at::Tensor& d_rows, const at::Tensor& d_weights, const at::Tensor& d_hidden,
                             const kernels::ExpertRows& by_expert, std::span<const at::Tensor> parameters,
                             const Microbatch& microbatch, std::vector<at::Tensor>& saved) const {
  const PlainOperators guard;
  const at::Tensor x = saved[0], statistics = saved[1], logits = saved[2], choice = saved[3];
  const at::Tensor h = normed(parameters, saved);
  at::Tensor d_choice = d_weights;
  if (d_weights.dim() == 1) d_choice = in_order(d_weights, by_expert.place.view({-1})).view(choice.sizes());
  const at::Tensor d_logits = at::empty_like(logits);
  const kernels::RouterLosses losses = kernels::router_backward(
      d_choice, logits, choice,
      {.length = microbatch.seq_len, .first = microbatch.first_token, .loads = microbatch.loads}, experts_,
      {.balance = microbatch.balance_scale, .z = microbatch.router_z_scale}, d_logits);
  const at::Tensor d_tokens = kernels::linear_backward_input(d_logits, parameters[router_]);
  std::vector<at::Tensor> of_shared;
  if (shares()) {
    const bool all = saved.size() > saves_tensors(false);
    const SharedExpert shared_expert(experts_, fp8_);
    d_tokens.add_(shared_expert.backward_input(d_hidden, parameters.subspan(shared(), shared_expert.parameters()),
                                               std::span(saved).subspan(4), all ? saved.back() : at::Tensor(),
                                               of_shared));
  }
  saved = {h, d_logits};
  const at::Tensor d_h = at::empty_like(h);
  kernels::sum_rows(d_rows, by_expert, d_tokens, d_h);
  Result result{.hidden = norm_.backward_input(d_h, x, parameters, statistics, d_hidden, saved),
                .balance_loss = losses.balance,
                .router_z_loss = losses.z,
                .device_router_losses = losses.on_device};
  saved.insert(saved.end(), of_shared.begin(), of_shared.end());
  return result;
}

void Route::backward_weight(const at::Tensor& d_hidden, std::span<const Grad> grads,
                            std::span<const at::Tensor> pending) const {
  const PlainOperators guard;
  const at::Tensor &h = pending[0], &d_logits = pending[1];
  put_gradients(pending.subspan(2, norm_.parameters()), grads);
  kernels::linear_backward_weight(d_logits, h, grads[router_]);
  if (experts_.choice_bias) no_gradient(grads[router_ + 1]);
  if (!shares()) return;
  const SharedExpert shared_expert(experts_, fp8_);
  shared_expert.backward_weight(d_hidden, h, grads.subspan(shared(), shared_expert.parameters()),
                                pending.subspan(2 + norm_.parameters()));
}

HeldExperts::HeldExperts(const model::Sizes& sizes, const model::ExpertPart& part, model::Fp8Products fp8)
    : fp8_(std::move(fp8)),
      size_(sizes.decoder.experts.value().size),
      held_(part.held(sizes.decoder.experts->count)),
      first_(static_cast<std::size_t>(3 * held_ * part.rank)) {}

at::Tensor HeldExperts::forward(const at::Tensor& rows, const at::Tensor& weights, std::span<const std::int64_t> begin,
                                std::span<const at::Tensor> parameters, Mode mode, Saved& saved) const {
  const PlainOperators guard;
  const ExpertProducts products(held_, fp8_);
  const auto mine = parameters.subspan(first_, static_cast<std::size_t>(3 * held_));
  const at::Tensor gate_up = products.gate_up(rows, begin, mine);
  if (saves(mode)) saved.tensors = {rows, weights, gate_up};
  if (mode == Mode::rebuild) return {};
  const at::Tensor inner = at::empty({rows.size(0), size_}, rows.options());
  kernels::swiglu(gate_up, inner);
  const bool keeps_all = mode == Mode::train_keep_all;
  if (keeps_all) saved.tensors.push_back(inner);
  const at::Tensor scaled = keeps_all ? at::empty_like(inner) : inner;
  kernels::scale_rows(inner, weights, one_by_one(rows.size(0), rows.options()), scaled);
  return products.down(scaled, begin, mine);
}

HeldExperts::Gradients HeldExperts::backward_input(const at::Tensor& d_out, std::span<const std::int64_t> begin,
                                                   std::span<const at::Tensor> parameters,
                                                   std::vector<at::Tensor>& saved) const {
  const PlainOperators guard;
  const ExpertProducts products(held_, fp8_);
  const auto mine = parameters.subspan(first_, static_cast<std::size_t>(3 * held_));
  const at::Tensor rows = saved[0], weights = saved[1], gate_up = saved[2];
  const kernels::ExpertRows same = one_by_one(rows.size(0), rows.options());
  at::Tensor inner = saved.size() > 3 ? saved[3] : at::empty({rows.size(0), size_}, rows.options());
  if (saved.size() == 3) kernels::swiglu(gate_up, inner);
  const at::Tensor scaled = at::empty_like(inner);
  kernels::scale_rows(inner, weights, same, scaled);
  const at::Tensor d_inner = products.backward_down(d_out, begin, mine);
  at::Tensor d_weights = kernels::weight_gradients(d_inner, inner, same).view({-1});
  inner.reset();
  kernels::scale_rows(d_inner, weights, same, d_inner);
  const at::Tensor d_gate_up = at::empty_like(gate_up);
  kernels::swiglu_backward(d_inner, gate_up, d_gate_up, d_inner);
  saved = {rows, d_out, scaled, d_gate_up};
  return {.rows = products.backward_gate_up(d_gate_up, begin, mine), .weights = std::move(d_weights)};
}

void HeldExperts::backward_weight(std::span<const std::int64_t> begin, std::span<const Grad> grads,
                                  std::span<const at::Tensor> pending) const {
  const PlainOperators guard;
  ExpertProducts(held_, fp8_)
      .backward_weight(pending[1], pending[2], pending[3], pending[0], begin,
                       grads.subspan(first_, static_cast<std::size_t>(3 * held_)));
}

}  // namespace trireme::nn
