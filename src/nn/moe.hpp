// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "trireme/kernels/experts.hpp"
#include "trireme/nn/norm.hpp"
#include "trireme/nn/stage.hpp"

namespace trireme::nn {

/// The products of some experts, one after the other, over rows sorted by expert: rows [begin[e], begin[e + 1]) are of
/// expert e. Parameters: gate and up of an expert side by side, every expert's down behind them. An expert without rows
/// writes gradients of zero all the same.
struct ExpertProducts {
  std::int64_t count = 0;

  /// out [R, 2I]: gate and up of inputs [R, D].
  void gate_up(const at::Tensor& inputs, std::span<const std::int64_t> begin, std::span<const at::Tensor> parameters,
               const at::Tensor& out) const;
  /// out [R, D] of what down reads, [R, I].
  void down(const at::Tensor& inner, std::span<const std::int64_t> begin, std::span<const at::Tensor> parameters,
            const at::Tensor& out) const;
  /// The gradient by what down reads, [R, I]; writes those by down.
  [[nodiscard]] at::Tensor backward_down(const at::Tensor& d_rows, const at::Tensor& inner,
                                         std::span<const std::int64_t> begin, std::span<const at::Tensor> parameters,
                                         std::span<const Grad> grads) const;
  /// The gradient by the inputs, [R, D]; writes those by gate and up.
  [[nodiscard]] at::Tensor backward_gate_up(const at::Tensor& d_gate_up, const at::Tensor& inputs,
                                            std::span<const std::int64_t> begin, std::span<const at::Tensor> parameters,
                                            std::span<const Grad> grads) const;

 private:
  [[nodiscard]] std::size_t down_of(std::int64_t e) const { return static_cast<std::size_t>(2 * count + e); }
};

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
  /// How many parameters it has.
  [[nodiscard]] std::size_t parameters() const { return router_ + 1 + static_cast<std::size_t>(3 * experts_.count); }

  std::int64_t hidden_;
  model::Experts experts_;
  Norm norm_;
  std::size_t router_;  ///< its place; the experts follow
  ExpertProducts products_;
};

}  // namespace trireme::nn
