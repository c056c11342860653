// SPDX-License-Identifier: Apache-2.0
#include "nn/residual.hpp"

#include "nn/common.hpp"

namespace trireme::nn {

Result Residual::forward(at::Tensor hidden, std::span<const at::Tensor> parameters, const Microbatch& microbatch,
                         Mode mode, Saved& saved) const {
  const PlainOperators guard;
  expect_call(hidden, microbatch, hidden_, parameters.size(), parameters.size());
  const auto [h, statistics] = norm_.forward(hidden, parameters);
  if (saves(mode)) saved.tensors = {hidden, statistics};
  Result result{
      .hidden = branch_->forward(h, hidden, parameters.subspan(norm_.parameters()), microbatch, mode, saved.tensors)};
  if (mode == Mode::train_keep_all) saved.tensors.push_back(h);
  return result;
}

Result Residual::backward(at::Tensor d_hidden, std::span<const at::Tensor> parameters, std::span<const Grad> grads,
                          const Microbatch& microbatch, Saved saved) const {
  const PlainOperators guard;
  expect_call(d_hidden, microbatch, hidden_, parameters.size(), grads.size());
  const at::Tensor x = saved.tensors[0];
  const at::Tensor statistics = saved.tensors[1];
  std::vector<at::Tensor> of_branch(saved.tensors.begin() + 2, saved.tensors.end());
  at::Tensor h;
  if (of_branch.size() > branch_->products()) {  // all is kept
    h = std::move(of_branch.back());
    of_branch.pop_back();
  }
  saved.tensors.clear();
  const std::size_t norm_parameters = norm_.parameters();
  const at::Tensor d_h = branch_->backward_input(d_hidden, parameters.subspan(norm_parameters), microbatch, of_branch);
  if (!h.defined()) h = norm_.again(x, parameters, statistics);
  branch_->backward_weight(h, grads.subspan(norm_parameters), of_branch);
  return {.hidden = norm_.backward(d_h, x, parameters, statistics, d_hidden, grads)};
}

}  // namespace trireme::nn
