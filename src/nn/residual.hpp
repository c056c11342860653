// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "trireme/nn/branch.hpp"
#include "trireme/nn/norm.hpp"
#include "trireme/nn/stage.hpp"

namespace trireme::nn {

/// y = x + branch(norm(x)). Parameters: the norm's, then the branch's. Saves x, the norm's statistics and what the
/// branch saves; the norm's output is computed again in backward unless all is kept: then it comes last.
class Residual final : public Stage {
 public:
  Residual(const model::Sizes& sizes, std::unique_ptr<Branch> branch)
      : hidden_(sizes.hidden), norm_(sizes), branch_(std::move(branch)) {}
  Result forward(at::Tensor hidden, std::span<const at::Tensor> parameters, const Microbatch& microbatch, Mode mode,
                 Saved& saved) const override;
  Result backward(at::Tensor d_hidden, std::span<const at::Tensor> parameters, std::span<const Grad> grads,
                  const Microbatch& microbatch, Saved saved) const override;

 private:
  std::int64_t hidden_;
  Norm norm_;
  std::unique_ptr<Branch> branch_;
};

}  // namespace trireme::nn
