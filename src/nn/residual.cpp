// SPDX-License-Identifier: Apache-2.0
#include "nn/residual.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/ops/clone.h>

#include <utility>

#include "nn/common.hpp"

namespace trireme::nn {

Result Residual::forward(at::Tensor hidden, std::span<const at::Tensor> parameters, const Microbatch& microbatch,
                         Mode mode, Saved& saved) const {
  const PlainOperators guard;
  expect_call(hidden, microbatch, hidden_, parameters.size(), parameters.size());
  const auto of_branch = parameters.subspan(before(), parameters.size() - before() - after());
  const auto [h, statistics] = pre_ ? norm_.forward(hidden, parameters) : Norm::Output{.h = hidden, .statistics = {}};
  std::vector<at::Tensor> kept;
  if (mode == Mode::generate) kept = std::exchange(saved.tensors, {});
  // The input of `post` is saved, so recompute needs it as well.
  const Mode branch_mode = post_ && mode == Mode::rebuild ? Mode::train : mode;
  at::Tensor y = branch_->forward(h, post_ ? at::Tensor() : hidden, of_branch, microbatch, branch_mode, kept);
  if (saves(mode)) saved.tensors = {hidden};
  if (saves(mode) && pre_) saved.tensors.push_back(statistics);
  if (post_) {
    const auto [normed, post_statistics] = norm_.forward(y, parameters.last(after()));
    if (saves(mode)) saved.tensors.insert(saved.tensors.end(), {y, post_statistics});
    y = mode == Mode::rebuild ? at::Tensor() : normed + hidden;
  }
  saved.tensors.insert(saved.tensors.end(), kept.begin(), kept.end());
  if (mode == Mode::train_keep_all && pre_) saved.tensors.push_back(h);
  return {.hidden = std::move(y)};
}

Result Residual::backward(at::Tensor d_hidden, std::span<const at::Tensor> parameters, std::span<const Grad> grads,
                          const Microbatch& microbatch, Saved saved) const {
  Result result = backward_input(std::move(d_hidden), parameters, microbatch, saved);
  backward_weight(grads, saved);
  return result;
}

Result Residual::backward_input(at::Tensor d_hidden, std::span<const at::Tensor> parameters,
                                const Microbatch& microbatch, Saved& saved) const {
  const PlainOperators guard;
  expect_call(d_hidden, microbatch, hidden_, parameters.size(), parameters.size());
  auto next = saved.tensors.begin();
  const at::Tensor x = *next++;
  const at::Tensor statistics = pre_ ? *next++ : at::Tensor();
  at::Tensor d_y = d_hidden;
  std::vector<at::Tensor> of_post, pending;
  if (post_) {
    const at::Tensor y = *next++, post_statistics = *next++;
    d_y = norm_.backward_input(d_hidden.clone(), y, parameters.last(after()), post_statistics, {}, of_post);
  }
  std::vector<at::Tensor> of_branch(next, saved.tensors.end());
  at::Tensor h = pre_ ? at::Tensor() : x;
  if (pre_ && of_branch.size() > branch_->products()) {  // all is kept
    h = std::move(of_branch.back());
    of_branch.pop_back();
  }
  saved.tensors.clear();
  const std::size_t count = parameters.size() - before() - after();
  const at::Tensor d_h = branch_->backward_input(d_y, parameters.subspan(before(), count), microbatch, of_branch);
  if (!h.defined()) h = norm_.again(x, parameters, statistics);
  pending.push_back(h);
  at::Tensor d_x = pre_ ? norm_.backward_input(d_h, x, parameters, statistics, d_hidden, pending) : d_h.add_(d_hidden);
  pending.insert(pending.end(), of_post.begin(), of_post.end());
  pending.insert(pending.end(), of_branch.begin(), of_branch.end());
  saved.tensors = std::move(pending);
  return {.hidden = std::move(d_x)};
}

void Residual::backward_weight(std::span<const Grad> grads, const Saved& saved) const {
  const PlainOperators guard;
  const std::span<const at::Tensor> pending = saved.tensors;
  put_gradients(pending.subspan(1, before()), grads);
  put_gradients(pending.subspan(1 + before(), after()), grads.last(after()));
  const std::vector<at::Tensor> of_branch(pending.begin() + static_cast<std::ptrdiff_t>(1 + before() + after()),
                                          pending.end());
  branch_->backward_weight(pending.front(), grads.subspan(before(), grads.size() - before() - after()), of_branch);
}

}  // namespace trireme::nn
