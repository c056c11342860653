// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "trireme/nn/stage.hpp"

namespace trireme::nn {

/// y[n] = x[n] + positions[place of n in its sequence] for the tokens n of the residual stream, after the past ones:
/// all of the microbatch, or under sequence parallelism those of this rank. Parameters: {positions [longest sequence,
/// D]}. Saves nothing.
class Positions final : public Stage {
 public:
  explicit Positions(int part = 0, const model::ContextPart& context = {}) : part_(part), context_(context) {}
  Result forward(at::Tensor hidden, std::span<const at::Tensor> parameters, const Microbatch& microbatch, Mode mode,
                 Saved& saved) const override;
  Result backward(at::Tensor d_hidden, std::span<const at::Tensor> parameters, std::span<const Grad> grads,
                  const Microbatch& microbatch, Saved saved) const override;

 private:
  /// int32 [count]: the position of each token here in its sequence.
  [[nodiscard]] at::Tensor positions_of(std::int64_t count, const Microbatch& microbatch, at::Device device) const;

  int part_;  ///< of the residual stream: the first token here is part_ times as many as there are here
  model::ContextPart context_;
};

}  // namespace trireme::nn
