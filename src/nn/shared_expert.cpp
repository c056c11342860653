// SPDX-License-Identifier: Apache-2.0
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/sigmoid.h>

#include "nn/common.hpp"
#include "nn/moe.hpp"
#include "trireme/kernels/gemm.hpp"
#include "trireme/kernels/swiglu.hpp"

namespace trireme::nn {

kernels::ExpertRows one_by_one(std::int64_t rows, const at::TensorOptions& options) {
  const at::Tensor same = at::arange(rows, options.dtype(at::kInt));
  return {.begin = {}, .choice = same, .place = same.view({rows, 1})};
}

at::Tensor SharedExpert::inner_of(const at::Tensor& gate_up) const {
  at::Tensor inner = at::empty({gate_up.size(0), width_}, gate_up.options());
  kernels::swiglu(gate_up, inner);
  return inner;
}

at::Tensor SharedExpert::forward(const at::Tensor& h, const at::Tensor& x, std::span<const at::Tensor> parameters,
                                 Mode mode, std::vector<at::Tensor>& saved, std::vector<at::Tensor>& kept) const {
  const auto projections = parameters.last(3);
  const at::Tensor gate_up = joint_linear(h, projections.first(2), of_gate_up_);
  at::Tensor logit;
  if (gated_) logit = kernels::linear(h.to(at::kFloat), parameters[0].to(at::kFloat));
  if (saves(mode)) saved.push_back(gate_up);
  if (saves(mode) && gated_) saved.push_back(logit);
  if (mode == Mode::rebuild) return {};
  const at::Tensor inner = inner_of(gate_up);
  const bool keeps_all = mode == Mode::train_keep_all;
  if (keeps_all) kept.push_back(inner);
  at::Tensor weighed = inner;
  if (gated_) {
    if (keeps_all) weighed = at::empty_like(inner);
    kernels::scale_rows(inner, at::sigmoid(logit), one_by_one(h.size(0), h.options()), weighed);
  }
  return kernels::linear_add(weighed, projections[2], x, of_down_);
}

at::Tensor SharedExpert::backward_input(const at::Tensor& d_out, std::span<const at::Tensor> parameters,
                                        std::span<const at::Tensor> saved, const at::Tensor& kept,
                                        std::vector<at::Tensor>& pending) const {
  const auto projections = parameters.last(3);
  const at::Tensor& gate_up = saved[0];
  const at::Tensor inner = kept.defined() ? kept : inner_of(gate_up);
  const at::Tensor d_inner = kernels::linear_backward_input(d_out, projections[2], of_down_);
  at::Tensor weighed = inner, d_logit;
  if (gated_) {
    const kernels::ExpertRows rows = one_by_one(d_out.size(0), d_out.options());
    const at::Tensor weight = at::sigmoid(saved[1]);
    weighed = at::empty_like(inner);
    kernels::scale_rows(inner, weight, rows, weighed);
    d_logit = kernels::weight_gradients(d_inner, inner, rows) * weight * (1 - weight);
    kernels::scale_rows(d_inner, weight, rows, d_inner);
  }
  const at::Tensor d_gate_up = at::empty_like(gate_up);
  kernels::swiglu_backward(d_inner, gate_up, d_gate_up, d_inner);
  at::Tensor d_h = joint_backward_input(d_gate_up, projections.first(2), of_gate_up_);
  if (gated_) d_h.add_(kernels::linear_backward_input(d_logit, parameters[0]));
  pending.insert(pending.end(), {weighed, d_gate_up});
  if (gated_) pending.push_back(d_logit);
  return d_h;
}

void SharedExpert::backward_weight(const at::Tensor& d_out, const at::Tensor& h, std::span<const Grad> grads,
                                   std::span<const at::Tensor> pending) const {
  const auto d_projections = grads.last(3);
  if (gated_) kernels::linear_backward_weight(pending[2], h, grads[0]);
  kernels::linear_backward_weight(d_out, pending[0], d_projections[2]);
  joint_backward_weight(pending[1], h, d_projections.first(2));
}

}  // namespace trireme::nn
