// SPDX-License-Identifier: Apache-2.0
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include "nn/common.hpp"
#include "trireme/base/error.hpp"
#include "trireme/kernels/geglu.hpp"
#include "trireme/kernels/gelu.hpp"
#include "trireme/kernels/swiglu.hpp"
#include "trireme/nn/branch.hpp"

namespace trireme::nn {
namespace {

using model::Activation, model::Role;

JointLinear inner_of(const model::Decoder& decoder, const Slots& slots, const model::Fp8Products& fp8) {
  const bool gated = decoder.gated();
  return {.weights = slots[gated ? Role::gate : Role::up],
          .count = gated ? 2U : 1U,
          .biases = decoder.mlp_bias ? std::optional(slots[gated ? Role::gate_bias : Role::up_bias]) : std::nullopt,
          .fp8 = fp8.of(Role::up)};
}

OutputLinear output_of_mlp(const model::Decoder& decoder, const Slots& slots, bool adds_bias,
                           const model::Fp8Products& fp8) {
  return {.weight = slots[Role::down],
          .bias = decoder.mlp_bias ? std::optional(slots[Role::down_bias]) : std::nullopt,
          .scale = decoder.residual_scale,
          .adds_bias = adds_bias,
          .fp8 = fp8.of(Role::down)};
}

/// Input of `down`. x: gate|up, or up.
at::Tensor activate(Activation activation, const at::Tensor& x) {
  const std::int64_t width = activation == Activation::gelu_tanh ? x.size(1) : x.size(1) / 2;
  at::Tensor inner = at::empty({x.size(0), width}, x.options());
  switch (activation) {
    case Activation::swiglu: kernels::swiglu(x, inner); break;
    case Activation::geglu_tanh: kernels::geglu_tanh(x, inner); break;
    case Activation::gelu_tanh: kernels::gelu_tanh(x, inner); break;
  }
  return inner;
}

struct ActivationGradient {
  at::Tensor d_x;    ///< shaped as x
  at::Tensor inner;  ///< output of `activate`, recomputed
};
/// d_inner is overwritten.
ActivationGradient activate_backward(Activation activation, const at::Tensor& d_inner, const at::Tensor& x) {
  switch (activation) {
    case Activation::swiglu: {
      const at::Tensor d_x = at::empty_like(x);
      kernels::swiglu_backward(d_inner, x, d_x, d_inner);
      return {.d_x = d_x, .inner = d_inner};
    }
    case Activation::geglu_tanh: {
      const at::Tensor d_x = at::empty_like(x);
      kernels::geglu_tanh_backward(d_inner, x, d_x, d_inner);
      return {.d_x = d_x, .inner = d_inner};
    }
    case Activation::gelu_tanh: {
      const at::Tensor inner = at::empty_like(x);
      kernels::gelu_tanh_backward(d_inner, x, d_inner, inner);
      return {.d_x = d_inner, .inner = inner};
    }
  }
  throw BugError("the MLP has no such activation");
}

}  // namespace

MlpBranch::MlpBranch(const model::Decoder& decoder, bool adds_bias, const model::Fp8Products& fp8)
    : activation_(decoder.activation),
      slots_(model::StageKind::mlp_branch, decoder),
      inner_(inner_of(decoder, slots_, fp8)),
      out_(output_of_mlp(decoder, slots_, adds_bias, fp8)) {}

at::Tensor MlpBranch::forward(const at::Tensor& h, const at::Tensor& residual, std::span<const at::Tensor> parameters,
                              const Microbatch& /*microbatch*/, Mode mode, std::vector<at::Tensor>& saved) const {
  const at::Tensor gate_up = inner_.forward(h, parameters);
  if (saves(mode)) saved.push_back(gate_up);
  if (mode == Mode::rebuild) return {};
  const at::Tensor inner = activate(activation_, gate_up);
  if (mode == Mode::train_keep_all) saved.push_back(inner);
  return out_.forward(inner, residual, parameters);
}

at::Tensor MlpBranch::backward_input(const at::Tensor& d_out, std::span<const at::Tensor> parameters,
                                     const Microbatch& /*microbatch*/, std::vector<at::Tensor>& saved) const {
  const at::Tensor gate_up = saved[0];
  const at::Tensor d_y = out_.scaled(d_out);
  const at::Tensor d_inner = out_.backward_input(d_y, parameters);
  const auto [d_gate_up, inner] = activate_backward(activation_, d_inner, gate_up);
  saved = {d_y, saved.size() > 1 ? saved[1] : inner, d_gate_up};
  return inner_.backward_input(d_gate_up, parameters);
}

void MlpBranch::backward_weight(const at::Tensor& h, std::span<const Grad> grads,
                                const std::vector<at::Tensor>& saved) const {
  out_.backward_weight(saved[0], saved[1], grads);
  inner_.backward_weight(saved[2], h, grads);
}

std::unique_ptr<Branch> make_branch(const model::Stage& stage, const model::Sizes& sizes, std::int64_t max_seq_len,
                                    bool adds_bias, at::Device device) {
  using model::StageKind;
  const StageKind kind = stage.kind;
  if (kind == StageKind::attention || kind == StageKind::attention_branch)
    return std::make_unique<AttentionBranch>(sizes, stage, max_seq_len, adds_bias, device);
  invariant(kind == StageKind::mlp || kind == StageKind::mlp_branch, "only attention and mlp have a branch");
  return std::make_unique<MlpBranch>(sizes.decoder, adds_bias, stage.fp8);
}

}  // namespace trireme::nn
