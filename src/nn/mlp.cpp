// SPDX-License-Identifier: Apache-2.0
#include "trireme/nn/mlp.hpp"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include "nn/common.hpp"
#include "trireme/kernels/gemm.hpp"
#include "trireme/kernels/rms_norm.hpp"
#include "trireme/kernels/swiglu.hpp"

namespace trireme::nn {

Result Mlp::forward(at::Tensor hidden, std::span<const at::Tensor> parameters, const Microbatch& microbatch, Mode mode,
                    Saved& saved) const {
  const PlainOperators guard;
  expect_call(hidden, microbatch, sizes_.hidden, parameters.size(), 4);
  const auto [h, rstd] = norm(hidden, parameters[0], sizes_.norm_eps);
  const at::Tensor gate_up = joint_linear(h, parameters.subspan(1, 2));
  if (mode == Mode::rebuild) {
    saved.tensors = {std::move(hidden), rstd, gate_up};
    return {};
  }
  const at::Tensor inner = at::empty({hidden.size(0), sizes_.intermediate}, hidden.options());
  kernels::swiglu(gate_up, inner);
  at::Tensor out = kernels::linear_add(inner, parameters[3], hidden);
  if (saves(mode)) saved.tensors = {std::move(hidden), rstd, gate_up};
  if (mode == Mode::train_keep_all) saved.tensors.insert(saved.tensors.end(), {h, inner});
  return {.hidden = std::move(out)};
}

Result Mlp::backward(at::Tensor d_hidden, std::span<const at::Tensor> parameters, std::span<const Grad> grads,
                     const Microbatch& microbatch, Saved saved) const {
  const PlainOperators guard;
  expect_call(d_hidden, microbatch, sizes_.hidden, grads.size(), 4);
  const at::Tensor& x = saved.tensors[0];
  const at::Tensor& rstd = saved.tensors[1];
  const at::Tensor& gate_up = saved.tensors[2];

  const at::Tensor d_inner = kernels::linear_backward_input(d_hidden, parameters[3]);
  const at::Tensor d_gate_up = at::empty_like(gate_up);
  const bool kept_all = saved.tensors.size() > 3;
  const at::Tensor& inner = d_inner;  // overwritten by the forward's value
  kernels::swiglu_backward(d_inner, gate_up, d_gate_up, inner);
  kernels::linear_backward_weight(d_hidden, kept_all ? saved.tensors[4] : inner, grads[3]);

  const at::Tensor h = kept_all ? saved.tensors[3] : norm_again(x, parameters[0], rstd);
  joint_backward_weight(d_gate_up, h, grads.subspan(1, 2));
  const at::Tensor d_h = joint_backward_input(d_gate_up, parameters.subspan(1, 2));
  kernels::rms_norm_backward(d_h, x, parameters[0], rstd, d_hidden, d_h, grads[0]);
  return {.hidden = d_h};
}

}  // namespace trireme::nn
