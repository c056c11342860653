// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "trireme/nn/stage.hpp"

namespace trireme::nn {

/// y[n] = x[n] + positions[past + n mod T] for the tokens n of the residual stream: all of the microbatch, or under
/// sequence parallelism those of this rank. Parameters: {positions [longest sequence, D]}. Saves nothing.
class Positions final : public Stage {
 public:
  explicit Positions(int part = 0) : part_(part) {}
  Result forward(at::Tensor hidden, std::span<const at::Tensor> parameters, const Microbatch& microbatch, Mode mode,
                 Saved& saved) const override;
  Result backward(at::Tensor d_hidden, std::span<const at::Tensor> parameters, std::span<const Grad> grads,
                  const Microbatch& microbatch, Saved saved) const override;

 private:
  int part_;  ///< of the residual stream: the first token here is part_ times as many as there are here
};

}  // namespace trireme::nn
