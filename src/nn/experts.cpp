// SPDX-License-Identifier: Apache-2.0
// A layer of experts: y = x + shared experts of h + the sum over a token's experts of weight * down(silu(gate(h)) *
// up(h)), h = norm(x) (Shazeer et al. 2017). The router's logits and everything computed from them are fp32. No token
// is dropped. Products are computed expert by expert over rows sorted by expert; down's input is weighted, so that the
// outputs of experts need not be saved.
#include "trireme/kernels/experts.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/sigmoid.h>

#include "nn/codes.hpp"
#include "nn/common.hpp"
#include "nn/expert_products.hpp"
#include "trireme/base/error.hpp"
#include "trireme/kernels/gemm.hpp"
#include "trireme/kernels/swiglu.hpp"

namespace trireme::nn {
namespace {

using model::TensorId;

/// The rows of a choice of one expert for each token: row i is token i.
kernels::ExpertRows one_by_one(std::int64_t rows, const at::TensorOptions& options) {
  const at::Tensor same = at::arange(rows, options.dtype(at::kInt));
  return {.begin = {}, .choice = same, .place = same.view({rows, 1})};
}

/// values[order[i]] for every i.
at::Tensor in_order(const at::Tensor& values, const at::Tensor& order) {
  const kernels::ExpertRows rows{.begin = {}, .choice = order, .place = order.view({-1, 1})};
  return kernels::gather_rows(values.view({-1, 1}), rows).view({-1});
}

/// The shared experts, as one: x + down(silu(gate(h)) * up(h)). If gated, down's input is multiplied by
/// sigmoid(weight(h)), in fp32 like a router. Parameters: the weight if gated; gate, up, down.
class SharedExpert {
  using enum model::TensorId;

 public:
  SharedExpert(const model::Experts& experts, const model::Fp8Products& fp8)
      : width_(experts.shared_size),
        gated_(experts.shared == model::SharedExperts::gated),
        of_gate_up_(fp8.of(model::Role::shared_gate)),
        of_down_(fp8.of(model::Role::shared_down)) {}

  /// x + the output; undefined if that is not read.
  [[nodiscard]] at::Tensor forward(StageFrame& f, const at::Tensor& h, const at::Tensor& x,
                                   std::span<const at::Tensor> parameters) const {
    const auto projections = parameters.last(3);
    f.kept[shared_gate_up] = joint_linear(h, projections.first(2), of_gate_up_);
    if (gated_) f.kept[shared_gate] = kernels::linear(h.to(at::kFloat), parameters[0].to(at::kFloat));
    if (!f.wants_output()) return {};
    const at::Tensor inner = f.kept[shared_inner] = inner_of(f.kept[shared_gate_up]);
    at::Tensor weighed = inner;
    if (gated_) {
      if (f.mode == Mode::train_keep_all) weighed = at::empty_like(inner);
      kernels::scale_rows(inner, at::sigmoid(f.kept[shared_gate]), one_by_one(h.size(0), h.options()), weighed);
    }
    return kernels::linear_add(weighed, projections[2], x, of_down_);
  }

  /// The gradient of h. d_out: of the output.
  [[nodiscard]] at::Tensor backward_input(StageFrame& f, const at::Tensor& d_out,
                                          std::span<const at::Tensor> parameters) const {
    const auto projections = parameters.last(3);
    const at::Tensor& gate_up = f.kept[shared_gate_up];
    at::Tensor inner = std::exchange(f.kept[shared_inner], at::Tensor());
    if (!inner.defined()) inner = inner_of(gate_up);
    if (!gated_) f.kept[shared_inner] = inner;
    const at::Tensor d_inner = kernels::linear_backward_input(d_out, projections[2], of_down_);
    if (gated_) {
      const kernels::ExpertRows rows = one_by_one(d_out.size(0), d_out.options());
      const at::Tensor weight = at::sigmoid(f.kept[shared_gate]);
      const at::Tensor weighed = f.kept[weighted_shared_inner] = at::empty_like(inner);
      kernels::scale_rows(inner, weight, rows, weighed);
      f.kept.gradient(shared_gate) = kernels::weight_gradients(d_inner, inner, rows) * weight * (1 - weight);
      kernels::scale_rows(d_inner, weight, rows, d_inner);
    }
    const at::Tensor d_gate_up = f.kept.gradient(shared_gate_up) = at::empty_like(gate_up);
    kernels::swiglu_backward(d_inner, gate_up, d_gate_up, d_inner);
    at::Tensor d_h = joint_backward_input(d_gate_up, projections.first(2), of_gate_up_);
    if (gated_) d_h.add_(kernels::linear_backward_input(f.kept.gradient(shared_gate), parameters[0]));
    return d_h;
  }

  void backward_weight(StageFrame& f, std::span<const Grad> grads) const {
    const auto d_projections = grads.last(3);
    const at::Tensor& h = f.kept[normed];
    if (gated_) kernels::linear_backward_weight(f.kept.gradient(shared_gate), h, grads[0]);
    kernels::linear_backward_weight(f.kept.gradient(branch_output),
                                    f.kept[gated_ ? weighted_shared_inner : shared_inner], d_projections[2]);
    joint_backward_weight(f.kept.gradient(shared_gate_up), h, d_projections.first(2));
  }

 private:
  /// Input of down, before its weight.
  [[nodiscard]] at::Tensor inner_of(const at::Tensor& gate_up) const {
    at::Tensor inner = at::empty({gate_up.size(0), width_}, gate_up.options());
    kernels::swiglu(gate_up, inner);
    return inner;
  }

  std::int64_t width_;
  bool gated_;
  Fp8 of_gate_up_, of_down_;
};

/// The router and shared experts: the computations for every token. The choice is made once and reused in a recompute.
/// Parameters: the router's weight, its correction bias if it has one, those of shared experts.
class RouterCode final : public StageCode {
 public:
  /// sends_rows: rows go to other ranks, and their weights with them; else experts read those of all tokens.
  RouterCode(const model::Experts& experts, const model::Fp8Products& fp8, bool sends_rows)
      : experts_(experts), sends_rows_(sends_rows), shared_at_(experts.choice_bias ? 2 : 1) {
    if (experts.shared != model::SharedExperts::none) shared_.emplace(experts, fp8);
  }

  void forward(StageFrame& f) const override {
    const at::Tensor h = f.take(normed);
    at::Tensor& choice = f.kept[chosen_experts];
    f.kept[router_logits] = kernels::linear(h.to(at::kFloat), f.parameters[0].to(at::kFloat));
    const at::Tensor& scores = f.kept[router_logits];
    invariant(choice.defined() || f.mode != Mode::rebuild,
              "experts are chosen once: a layer that runs again is given its choice");
    invariant(choice.defined() || f.batch.choice_bias.defined() == experts_.choice_bias,
              "a layer with a correction bias is given it");
    if (!choice.defined()) choice = kernels::choose_experts(scores, experts_, f.batch.choice_bias);
    const at::Tensor weights = kernels::expert_weights(scores, choice, experts_);
    f.routing.rows = kernels::expert_rows(choice, experts_.count, f.batch.expert_tokens);
    if (shared_) {
      at::Tensor sum = shared_->forward(f, h, f[residual], f.parameters.subspan(shared_at_));
      if (f.wants_output()) f[residual] = std::move(sum);
    }
    f[permuted_tokens] = kernels::gather_rows(h, f.routing.rows);
    f[permuted_probs] = sends_rows_ ? in_order(weights, f.routing.rows.choice) : weights;
  }

  void backward_input(StageFrame& f) const override {
    const at::Tensor d_rows = f.take(permuted_tokens), &choice = f.kept[chosen_experts];
    at::Tensor d_weights = f.take(permuted_probs);
    if (sends_rows_) d_weights = in_order(d_weights, f.routing.rows.place.view({-1})).view(choice.sizes());
    const at::Tensor d_logits = f.kept.gradient(router_logits) = at::empty_like(f.kept[router_logits]);
    const kernels::RouterLosses losses =
        kernels::router_backward(d_weights, f.kept[router_logits], choice,
                                 {.length = f.batch.seq_len, .first = f.batch.first_token, .loads = f.batch.loads},
                                 experts_, {.balance = f.batch.balance_scale, .z = f.batch.router_z_scale}, d_logits);
    f.losses.balance += losses.balance;
    f.losses.router_z += losses.z;
    f.losses.routers_on_device = losses.on_device;
    const at::Tensor d_tokens = kernels::linear_backward_input(d_logits, f.parameters[0]);
    if (shared_) {
      f.kept.gradient(branch_output) = f[residual];
      d_tokens.add_(shared_->backward_input(f, f[residual], f.parameters.subspan(shared_at_)));
    }
    const at::Tensor d_h = at::empty_like(f.kept[x]);
    kernels::sum_rows(d_rows, f.routing.rows, d_tokens, d_h);
    f[normed] = d_h;
  }

  void backward_weight(StageFrame& f) const override {
    kernels::linear_backward_weight(f.kept.gradient(router_logits), f.kept[normed], f.gradients[0]);
    if (experts_.choice_bias) no_gradient(f.gradients[1]);
    if (shared_) shared_->backward_weight(f, f.gradients.subspan(shared_at_));
  }

 private:
  model::Experts experts_;
  bool sends_rows_;
  std::optional<SharedExpert> shared_;
  std::size_t shared_at_;  ///< place of their first parameter
};

/// weight * down(silu(gate(row)) * up(row)) of experts over their rows. Parameters: those of all experts, of which a
/// rank uses its part.
class ExpertsCode final : public StageCode {
 public:
  /// receives_rows: rows come from other ranks, and their weights with them; else they are gathered where they are
  /// read, and never kept.
  ExpertsCode(const model::Experts& experts, const model::ExpertPart& part, const model::Fp8Products& fp8,
              bool receives_rows)
      : experts_(experts),
        receives_rows_(receives_rows),
        products_(part.held(experts.count), fp8),
        first_(static_cast<std::size_t>(3 * products_.count * part.rank)) {}

  void forward(StageFrame& f) const override {
    const at::Tensor rows = f.take(permuted_tokens), weights = f.take(permuted_probs);
    const std::vector<std::int64_t>& begin = begins(f);
    if (receives_rows_) {
      f.kept[permuted_tokens] = rows;
      f.kept[permuted_probs] = weights;
    }
    const at::Tensor gate_up = f.kept[expert_gate_up] = products_.gate_up(rows, begin, mine(f.parameters));
    f[expert_output] = at::Tensor();
    if (!f.wants_output()) return;
    const at::Tensor inner = f.kept[expert_inner] = inner_of(gate_up);
    const at::Tensor scaled = f.mode == Mode::train_keep_all ? at::empty_like(inner) : inner;
    kernels::scale_rows(inner, weights, rows_of(f, rows), scaled);
    f[expert_output] = products_.down(scaled, begin, mine(f.parameters));
  }

  void backward_input(StageFrame& f) const override {
    const std::vector<std::int64_t>& begin = begins(f);
    const at::Tensor& gate_up = f.kept[expert_gate_up];
    const at::Tensor weights = receives_rows_
                                   ? f.kept[permuted_probs]
                                   : kernels::expert_weights(f.kept[router_logits], f.kept[chosen_experts], experts_);
    const kernels::ExpertRows rows = rows_of(f, gate_up);
    at::Tensor inner = std::exchange(f.kept[expert_inner], at::Tensor());
    if (!inner.defined()) inner = inner_of(gate_up);
    const at::Tensor scaled = f.kept[weighted_expert_inner] = at::empty_like(inner);
    kernels::scale_rows(inner, weights, rows, scaled);
    at::Tensor d_out = d_output(f);
    const at::Tensor d_inner = products_.backward_down(d_out, begin, mine(f.parameters));
    if (receives_rows_) f.kept.gradient(expert_output) = d_out;
    d_out.reset();
    at::Tensor d_weights = kernels::weight_gradients(d_inner, inner, rows);
    inner.reset();
    kernels::scale_rows(d_inner, weights, rows, d_inner);
    const at::Tensor d_gate_up = f.kept.gradient(expert_gate_up) = at::empty_like(gate_up);
    kernels::swiglu_backward(d_inner, gate_up, d_gate_up, d_inner);
    f[permuted_tokens] = products_.backward_gate_up(d_gate_up, begin, mine(f.parameters));
    f[permuted_probs] = receives_rows_ ? d_weights.view({-1}) : d_weights;
  }

  void backward_weight(StageFrame& f) const override {
    if (!receives_rows_ && !f.routing.rows.choice.defined())
      f.routing.rows = kernels::expert_rows(f.kept[chosen_experts], experts_.count);
    const std::vector<std::int64_t>& begin = begins(f);
    const at::Tensor d_out = receives_rows_ ? f.kept.gradient(expert_output)
                                            : kernels::gather_rows(f.kept.gradient(branch_output), f.routing.rows);
    const at::Tensor rows =
        receives_rows_ ? f.kept[permuted_tokens] : kernels::gather_rows(f.kept[normed], f.routing.rows);
    products_.backward_weight(d_out, f.kept[weighted_expert_inner], f.kept.gradient(expert_gate_up), rows, begin,
                              mine(f.gradients));
  }

 private:
  /// This rank's part of the experts' parameters or gradients.
  template <class T>
  [[nodiscard]] std::span<const T> mine(std::span<const T> all) const {
    return all.subspan(first_, static_cast<std::size_t>(3 * products_.count));
  }
  /// Begins of the rows of each expert. On a GPU the host waits for those that it has not.
  [[nodiscard]] const std::vector<std::int64_t>& begins(StageFrame& f) const {
    if (receives_rows_) return f.routing.received;
    kernels::fetch_begin(f.routing.rows);
    return f.routing.rows.begin;
  }
  /// The weights of the rows: each its own, or an element of the table of all tokens.
  [[nodiscard]] kernels::ExpertRows rows_of(StageFrame& f, const at::Tensor& like) const {
    return receives_rows_ ? one_by_one(like.size(0), like.options()) : f.routing.rows;
  }
  [[nodiscard]] at::Tensor d_output(StageFrame& f) const {
    if (receives_rows_) return f.take(expert_output);
    return kernels::gather_rows(f[residual], f.routing.rows);
  }
  [[nodiscard]] at::Tensor inner_of(const at::Tensor& gate_up) const {
    at::Tensor inner = at::empty({gate_up.size(0), experts_.size}, gate_up.options());
    kernels::swiglu(gate_up, inner);
    return inner;
  }

  model::Experts experts_;
  bool receives_rows_;
  ExpertProducts products_;
  std::size_t first_;  ///< of its parameters
};

/// The residual stream + the sum of each token's rows. Keeps nothing: reads the choice that the router kept.
class MergeCode final : public StageCode {
 public:
  /// sends_rows: gradients of rows go to other ranks; else the experts gather them.
  MergeCode(std::int64_t experts, bool sends_rows) : experts_(experts), sends_rows_(sends_rows) {}

  void forward(StageFrame& f) const override {
    const at::Tensor rows = f.take(expert_output), stream = f.take(residual);
    if (!f.wants_output()) return;
    const at::Tensor out = at::empty_like(stream);
    kernels::sum_rows(rows, f.routing.rows, stream, out);
    f[residual] = out;
  }

  void backward_input(StageFrame& f) const override {
    f.routing.rows = kernels::expert_rows(f.kept[chosen_experts], experts_, f.batch.expert_tokens);
    if (sends_rows_)
      f[expert_output] = kernels::gather_rows(f[residual], f.routing.rows);
    else
      f.kept.gradient(branch_output) = f[residual];
  }
  void backward_weight(StageFrame& /*f*/) const override {}
  void backward(StageFrame& f) const override { backward_input(f); }

 private:
  std::int64_t experts_;
  bool sends_rows_;
};

}  // namespace

std::unique_ptr<StageCode> make_expert_code(const model::Model& model, const model::Stage& stage,
                                            model::StageKind kind) {
  using model::StageKind;
  const model::Experts& experts = model.sizes.decoder.experts.value();
  const bool moves_rows = stage.kind != StageKind::moe;
  switch (kind) {
    case StageKind::route: return std::make_unique<RouterCode>(experts, stage.fp8, moves_rows);
    case StageKind::experts: return std::make_unique<ExpertsCode>(experts, model.part.experts, stage.fp8, moves_rows);
    default: return std::make_unique<MergeCode>(experts.count, moves_rows);
  }
}

}  // namespace trireme::nn
