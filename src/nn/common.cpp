// SPDX-License-Identifier: Apache-2.0
#include "nn/common.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>

#include <algorithm>

#include "nn/linear.hpp"
#include "trireme/base/error.hpp"
#include "trireme/kernels/bias.hpp"
#include "trireme/kernels/gemm.hpp"

namespace trireme::nn {

at::Tensor joined(std::span<const at::Tensor> matrices) {
  const at::Tensor& first = matrices.front();
  std::int64_t heights = 0;
  std::int64_t offset = first.storage_offset();
  for (const at::Tensor& m : matrices) {
    if (!m.is_contiguous() || m.storage().data() != first.storage().data() || m.storage_offset() != offset) return {};
    heights += m.size(0);
    offset += m.numel();
  }
  return first.as_strided({heights, first.size(1)}, {first.size(1), 1});
}

namespace {

/// Several weights as one; a copy unless they are contiguous.
at::Tensor as_one(std::span<const at::Tensor> weights) {
  const at::Tensor all = joined(weights);
  return all.defined() ? all : at::cat(at::TensorList(weights.data(), weights.size()));
}

}  // namespace

at::Tensor joint_linear(const at::Tensor& x, std::span<const at::Tensor> weights, Fp8 fp8) {
  if (fp8 != Fp8::none) return kernels::linear(x, as_one(weights), fp8);
  if (const at::Tensor all = joined(weights); all.defined()) return kernels::linear(x, all);
  std::int64_t width = 0;
  for (const at::Tensor& w : weights) width += w.size(0);
  at::Tensor out = at::empty({x.size(0), width}, x.options());
  std::int64_t begin = 0;
  for (const at::Tensor& w : weights) {
    out.slice(1, begin, begin + w.size(0)).copy_(kernels::linear(x, w));
    begin += w.size(0);
  }
  return out;
}

at::Tensor joint_backward_input(const at::Tensor& d_y, std::span<const at::Tensor> weights, Fp8 fp8) {
  if (fp8 != Fp8::none) return kernels::linear_backward_input(d_y, as_one(weights), fp8);
  if (const at::Tensor all = joined(weights); all.defined()) return kernels::linear_backward_input(d_y, all);
  at::Tensor sum;
  std::int64_t begin = 0;
  for (const at::Tensor& w : weights) {
    const at::Tensor part = kernels::linear_backward_input(d_y.slice(1, begin, begin + w.size(0)), w);
    sum = sum.defined() ? sum.add_(part) : part;
    begin += w.size(0);
  }
  return sum;
}

void joint_backward_weight(const at::Tensor& d_y, const at::Tensor& x, std::span<const Grad> grads) {
  std::vector<at::Tensor> tensors;
  bool alike = true;
  for (const Grad& grad : grads) {
    tensors.push_back(grad.tensor);
    alike = alike && grad.accumulate == grads.front().accumulate;
  }
  if (const at::Tensor all = joined(tensors); alike && all.defined()) {
    return kernels::linear_backward_weight(d_y, x, {.tensor = all, .accumulate = grads.front().accumulate});
  }
  std::int64_t begin = 0;
  for (const Grad& grad : grads) {
    kernels::linear_backward_weight(d_y.slice(1, begin, begin + grad.tensor.size(0)), x, grad);
    begin += grad.tensor.size(0);
  }
}

bool Slots::has(model::Role role) const { return std::find(roles_.begin(), roles_.end(), role) != roles_.end(); }

std::size_t Slots::operator[](model::Role role) const {
  const auto found = std::find(roles_.begin(), roles_.end(), role);
  invariant(found != roles_.end(), "a branch has no parameter of a role");
  return static_cast<std::size_t>(found - roles_.begin());
}

at::Tensor JointLinear::forward(const at::Tensor& x, std::span<const at::Tensor> parameters) const {
  at::Tensor y = joint_linear(x, parameters.subspan(weights, count), fp8);
  if (!biases) return y;
  std::int64_t begin = 0;
  for (const at::Tensor& bias : parameters.subspan(*biases, count)) {
    kernels::add_bias(y.slice(1, begin, begin + bias.size(0)), bias);
    begin += bias.size(0);
  }
  return y;
}

at::Tensor JointLinear::backward_input(const at::Tensor& d_y, std::span<const at::Tensor> parameters) const {
  return joint_backward_input(d_y, parameters.subspan(weights, count), fp8);
}

void JointLinear::backward_weight(const at::Tensor& d_y, const at::Tensor& x, std::span<const Grad> grads) const {
  joint_backward_weight(d_y, x, grads.subspan(weights, count));
  if (!biases) return;
  std::int64_t begin = 0;
  for (const Grad& grad : grads.subspan(*biases, count)) {
    kernels::bias_gradient(d_y.slice(1, begin, begin + grad.tensor.size(0)), grad);
    begin += grad.tensor.size(0);
  }
}

at::Tensor OutputLinear::forward(const at::Tensor& x, const at::Tensor& residual,
                                 std::span<const at::Tensor> parameters) const {
  const bool adds = residual.defined() && scale == 1;
  const at::Tensor& w = parameters[weight];
  at::Tensor y = adds ? kernels::linear_add(x, w, residual, fp8) : kernels::linear(x, w, fp8);
  if (bias && adds_bias) kernels::add_bias(y, parameters[*bias]);
  if (scale == 1) return y;
  y.mul_(scale);
  return residual.defined() ? y.add_(residual) : y;
}

at::Tensor OutputLinear::scaled(const at::Tensor& d_y) const { return scale == 1 ? d_y : d_y * scale; }

at::Tensor OutputLinear::backward_input(const at::Tensor& d_y, std::span<const at::Tensor> parameters) const {
  return kernels::linear_backward_input(d_y, parameters[weight], fp8);
}

void OutputLinear::backward_weight(const at::Tensor& d_y, const at::Tensor& x, std::span<const Grad> grads) const {
  kernels::linear_backward_weight(d_y, x, grads[weight]);
  if (bias) kernels::bias_gradient(d_y, grads[*bias]);
}

}  // namespace trireme::nn
