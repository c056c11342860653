// SPDX-License-Identifier: Apache-2.0
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include "nn/codes.hpp"
#include "trireme/base/error.hpp"
#include "trireme/kernels/geglu.hpp"
#include "trireme/kernels/gelu.hpp"
#include "trireme/kernels/swiglu.hpp"

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

MlpCode::MlpCode(const model::Decoder& decoder, bool adds_bias, const model::Fp8Products& fp8, Output output)
    : activation_(decoder.activation),
      slots_(model::StageKind::mlp_branch, decoder),
      in_(inner_of(decoder, slots_, fp8)),
      out_(output_of_mlp(decoder, slots_, adds_bias, fp8)),
      output_(output) {}

void MlpCode::forward(StageFrame& f) const {
  const at::Tensor h = f.take(normed);
  f.kept[gate_up] = in_.forward(h, f.parameters);
  at::Tensor y;
  if (f.wants_output()) {
    f.kept[inner] = activate(activation_, f.kept[gate_up]);
    y = out_.forward(f.kept[inner], f.addend(output_.result), f.parameters);
  }
  f[output_.result] = std::move(y);
}

void MlpCode::backward_input(StageFrame& f) const {
  const at::Tensor d_y = out_.scaled(f.upstream(output_.upstream));
  f.kept.gradient(branch_output) = d_y;
  const auto [d_gate_up, recomputed] =
      activate_backward(activation_, out_.backward_input(d_y, f.parameters), f.kept[gate_up]);
  if (!f.kept[inner].defined()) f.kept[inner] = recomputed;
  f.kept.gradient(gate_up) = d_gate_up;
  f[normed] = in_.backward_input(d_gate_up, f.parameters);
}

void MlpCode::backward_weight(StageFrame& f) const {
  const at::Tensor h = f.take({normed, schedule::Phase::again});
  out_.backward_weight(f.kept.gradient(branch_output), f.kept[inner], f.gradients);
  in_.backward_weight(f.kept.gradient(gate_up), h, f.gradients);
}

}  // namespace trireme::nn
