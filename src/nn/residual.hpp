// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "trireme/nn/branch.hpp"
#include "trireme/nn/norm.hpp"
#include "trireme/nn/stage.hpp"

namespace trireme::nn {

/// y = x + post(branch(pre(x))), where each norm is as the decoder specifies. Parameters: of pre, of the branch, of
/// post. Saves x, the statistics of pre, the branch's output and the statistics of post, and what the branch saves; the
/// output of pre is computed again in backward unless all is kept: then it comes last.
class Residual final : public Stage {
 public:
  Residual(const model::Sizes& sizes, std::unique_ptr<Branch> branch)
      : hidden_(sizes.hidden),
        pre_(sizes.decoder.pre_norm),
        post_(sizes.decoder.post_norm),
        norm_(sizes),
        branch_(std::move(branch)) {}
  Result forward(at::Tensor hidden, std::span<const at::Tensor> parameters, const Microbatch& microbatch, Mode mode,
                 Saved& saved) const override;
  Result backward(at::Tensor d_hidden, std::span<const at::Tensor> parameters, std::span<const Grad> grads,
                  const Microbatch& microbatch, Saved saved) const override;
  /// Pending: the branch's input, the gradients by the norms' parameters, inputs of the branch's weight gradients.
  Result backward_input(at::Tensor d_hidden, std::span<const at::Tensor> parameters, const Microbatch& microbatch,
                        Saved& saved) const override;
  void backward_weight(std::span<const Grad> grads, const Saved& saved) const override;

 private:
  [[nodiscard]] std::size_t before() const {
    return pre_ ? norm_.parameters() : 0;
  }  ///< parameters before the branch's
  [[nodiscard]] std::size_t after() const { return post_ ? norm_.parameters() : 0; }

  std::int64_t hidden_;
  bool pre_, post_;
  Norm norm_;
  std::unique_ptr<Branch> branch_;
};

}  // namespace trireme::nn
