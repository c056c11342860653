// SPDX-License-Identifier: Apache-2.0
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include "nn/common.hpp"
#include "trireme/base/error.hpp"
#include "trireme/kernels/bias.hpp"
#include "trireme/kernels/gelu.hpp"
#include "trireme/kernels/gemm.hpp"
#include "trireme/kernels/swiglu.hpp"
#include "trireme/nn/branch.hpp"

namespace trireme::nn {
namespace {

at::Tensor project(const at::Tensor& inner, const at::Tensor& down, const at::Tensor& residual) {
  return residual.defined() ? kernels::linear_add(inner, down, residual) : kernels::linear(inner, down);
}

}  // namespace

at::Tensor SwigluBranch::forward(const at::Tensor& h, const at::Tensor& residual,
                                 std::span<const at::Tensor> parameters, const Microbatch& /*microbatch*/, Mode mode,
                                 std::vector<at::Tensor>& saved) const {
  const at::Tensor gate_up = joint_linear(h, parameters.first(2));
  if (saves(mode)) saved.push_back(gate_up);
  if (mode == Mode::rebuild) return {};
  const at::Tensor inner = at::empty({h.size(0), gate_up.size(1) / 2}, h.options());
  kernels::swiglu(gate_up, inner);
  if (mode == Mode::train_keep_all) saved.push_back(inner);
  return project(inner, parameters[2], residual);
}

at::Tensor SwigluBranch::backward_input(const at::Tensor& d_y, std::span<const at::Tensor> parameters,
                                        const Microbatch& /*microbatch*/, std::vector<at::Tensor>& saved) const {
  const at::Tensor gate_up = saved[0];
  const at::Tensor d_inner = kernels::linear_backward_input(d_y, parameters[2]);
  const at::Tensor d_gate_up = at::empty_like(gate_up);
  const at::Tensor& inner = d_inner;  // overwritten by the forward's value
  kernels::swiglu_backward(d_inner, gate_up, d_gate_up, inner);
  saved = {d_y, saved.size() > 1 ? saved[1] : inner, d_gate_up};
  return joint_backward_input(d_gate_up, parameters.first(2));
}

void SwigluBranch::backward_weight(const at::Tensor& h, std::span<const Grad> grads,
                                   const std::vector<at::Tensor>& saved) const {
  kernels::linear_backward_weight(saved[0], saved[1], grads[2]);
  joint_backward_weight(saved[2], h, grads.first(2));
}

at::Tensor GeluBranch::forward(const at::Tensor& h, const at::Tensor& residual, std::span<const at::Tensor> parameters,
                               const Microbatch& /*microbatch*/, Mode mode, std::vector<at::Tensor>& saved) const {
  const at::Tensor up = kernels::linear(h, parameters[0]);
  kernels::add_bias(up, parameters[1]);
  if (saves(mode)) saved.push_back(up);
  if (mode == Mode::rebuild) return {};
  const at::Tensor inner = at::empty_like(up);
  kernels::gelu_tanh(up, inner);
  if (mode == Mode::train_keep_all) saved.push_back(inner);
  at::Tensor y = project(inner, parameters[2], residual);
  if (adds_bias_) kernels::add_bias(y, parameters[3]);
  return y;
}

at::Tensor GeluBranch::backward_input(const at::Tensor& d_y, std::span<const at::Tensor> parameters,
                                      const Microbatch& /*microbatch*/, std::vector<at::Tensor>& saved) const {
  const at::Tensor up = saved[0];
  const at::Tensor d_up = kernels::linear_backward_input(d_y, parameters[2]);
  const at::Tensor inner = at::empty_like(up);
  kernels::gelu_tanh_backward(d_up, up, d_up, inner);
  saved = {d_y, saved.size() > 1 ? saved[1] : inner, d_up};
  return kernels::linear_backward_input(d_up, parameters[0]);
}

void GeluBranch::backward_weight(const at::Tensor& h, std::span<const Grad> grads,
                                 const std::vector<at::Tensor>& saved) const {
  kernels::linear_backward_weight(saved[0], saved[1], grads[2]);
  kernels::bias_gradient(saved[0], grads[3]);
  kernels::linear_backward_weight(saved[2], h, grads[0]);
  kernels::bias_gradient(saved[2], grads[1]);
}

std::unique_ptr<Branch> make_branch(model::StageKind kind, const model::Sizes& sizes, std::int64_t max_seq_len,
                                    bool adds_bias, at::Device device) {
  using model::StageKind;
  if (kind == StageKind::attention || kind == StageKind::attention_branch)
    return std::make_unique<AttentionBranch>(sizes, max_seq_len, adds_bias, device);
  invariant(kind == StageKind::mlp || kind == StageKind::mlp_branch, "only attention and mlp have a branch");
  if (sizes.form.activation == model::Activation::gelu_tanh) {
    invariant(sizes.form.biases, "GELU comes with biases");
    return std::make_unique<GeluBranch>(adds_bias);
  }
  invariant(!sizes.form.biases, "SwiGLU comes without biases");
  return std::make_unique<SwigluBranch>();
}

}  // namespace trireme::nn
