// SPDX-License-Identifier: Apache-2.0
#include <ATen/TensorOperators.h>
#include <ATen/ops/clone.h>

#include "nn/codes.hpp"

namespace trireme::nn {

using schedule::Phase, schedule::TensorRef;

void NormCode::forward(StageFrame& f) const {
  f.kept[x] = f[residual];
  auto [h, statistics] = norm_.forward(f[residual], f.parameters);
  if (f.kept.lists(normed)) f.kept[normed] = h;
  f[normed] = std::move(h);
  f.kept[norm_statistics] = std::move(statistics);
}

void NormCode::rebuild(StageFrame& f) const {
  f[normed] = norm_.again(f.kept[x], f.parameters, f.kept[norm_statistics]);
}

void NormCode::backward_input(StageFrame& f) const {
  if (f.kept.lists(normed) && !f.kept[normed].defined())
    f.kept[normed] = norm_.again(f.kept[x], f.parameters, f.kept[norm_statistics]);
  std::vector<at::Tensor> gradients;
  const at::Tensor d_normed = f.take(normed);
  f[residual] =
      norm_.backward_input(d_normed, f.kept[x], f.parameters, f.kept[norm_statistics], f[residual], gradients);
  f.kept.put_gradients({norm_weight, norm_bias}, gradients);
}

void NormCode::backward_weight(StageFrame& f) const {
  if (f.kept.lists(normed)) f[TensorRef{normed, Phase::again}] = f.kept[normed];
  put_gradients(f.kept.gradients({norm_weight, norm_bias}), f.gradients);
}

void NormCode::backward(StageFrame& f) const {
  const at::Tensor d_normed = f.take(normed);
  f[residual] = norm_.backward(d_normed, f.kept[x], f.parameters, f.kept[norm_statistics], f[residual], f.gradients);
}

void InputCode::forward(StageFrame& f) const { f[normed] = f.kept[x] = f[residual]; }

void InputCode::rebuild(StageFrame& f) const { f[normed] = f.kept[x]; }

void InputCode::backward_input(StageFrame& f) const { f[residual] = f.take(normed).add_(f[residual]); }

void InputCode::backward_weight(StageFrame& f) const {
  if (f.has(TensorRef{normed, Phase::again})) f[TensorRef{normed, Phase::again}] = f.kept[x];
}

void PostNormCode::forward(StageFrame& f) const {
  f.kept[post_norm_input] = f.take(branch_output);
  auto [h, statistics] = norm_.forward(f.kept[post_norm_input], f.parameters);
  f.kept[post_norm_statistics] = std::move(statistics);
  if (f.wants_output()) h.add_(f[residual]);
  f[residual] = std::move(h);
}

void PostNormCode::backward_input(StageFrame& f) const {
  std::vector<at::Tensor> gradients;
  f[branch_output] = norm_.backward_input(f[residual].clone(), f.kept[post_norm_input], f.parameters,
                                          f.kept[post_norm_statistics], {}, gradients);
  f.kept.put_gradients({post_norm_weight, post_norm_bias}, gradients);
}

void PostNormCode::backward_weight(StageFrame& f) const {
  put_gradients(f.kept.gradients({post_norm_weight, post_norm_bias}), f.gradients);
}

void PostNormCode::backward(StageFrame& f) const {
  f[branch_output] = norm_.backward(f[residual].clone(), f.kept[post_norm_input], f.parameters,
                                    f.kept[post_norm_statistics], {}, f.gradients);
}

}  // namespace trireme::nn
