// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "trireme/kernels/experts.hpp"
#include "trireme/nn/norm.hpp"
#include "trireme/nn/stage.hpp"

namespace trireme::nn {

/// y = x + the sum over a token's experts of weight * down(silu(gate(h)) * up(h)), h = norm(x) (Shazeer et al. 2017).
/// The router's logits and all that follows from them are fp32. No token is dropped. Products go expert by expert over
/// rows sorted by expert; the weight multiplies what down reads, so that the outputs of experts are not kept.
/// Parameters: roles_of(moe). Saves x, the statistics of the norm, the logits, the choice, gate|up of all rows; where
/// all is kept, what down reads before its weight, and h. The choice is made once: a stage that runs again is given it.
class Moe final : public Stage {
 public:
  explicit Moe(const model::Sizes& sizes);
  Result forward(at::Tensor hidden, std::span<const at::Tensor> parameters, const Microbatch& microbatch, Mode mode,
                 Saved& saved) const override;
  Result backward(at::Tensor d_hidden, std::span<const at::Tensor> parameters, std::span<const Grad> grads,
                  const Microbatch& microbatch, Saved saved) const override;

 private:
  /// What backward goes by.
  struct Rows {
    at::Tensor choice, weights;
    kernels::ExpertRows by_expert;
  };
  [[nodiscard]] Rows rows_of(const at::Tensor& logits, const at::Tensor& choice) const;
  /// Writes the gradients by down; returns that by what it reads, before the weights: [R, I].
  [[nodiscard]] at::Tensor backward_down(const at::Tensor& d_rows, const at::Tensor& scaled,
                                         std::span<const at::Tensor> parameters, std::span<const Grad> grads,
                                         const kernels::ExpertRows& rows) const;
  /// The places of the parameters of expert e.
  [[nodiscard]] std::size_t gate_up(std::int64_t e) const { return router_ + 1 + 2 * static_cast<std::size_t>(e); }
  [[nodiscard]] std::size_t down(std::int64_t e) const { return gate_up(experts_.count) + static_cast<std::size_t>(e); }

  std::int64_t hidden_;
  model::Experts experts_;
  Norm norm_;
  std::size_t router_;  ///< its place
};

}  // namespace trireme::nn
