// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "trireme/nn/stage.hpp"

namespace trireme::nn {

/// y = x + down(silu(gate(h)) * up(h)) with h = RMSNorm(x).
/// Parameters: {post_attention_layernorm [D], gate [I, D], up [I, D], down [D, I]}.
/// Saves x, rstd and gate|up as one [B*T, 2I]; h and silu(gate) * up are computed again in backward unless all
/// is kept.
class Mlp final : public Stage {
 public:
  explicit Mlp(const model::Sizes& sizes) : sizes_(sizes) {}
  Result forward(at::Tensor hidden, std::span<const at::Tensor> parameters, const Microbatch& microbatch, Mode mode,
                 Saved& saved) const override;
  Result backward(at::Tensor d_hidden, std::span<const at::Tensor> parameters, std::span<const Grad> grads,
                  const Microbatch& microbatch, Saved saved) const override;

 private:
  model::Sizes sizes_;
};

}  // namespace trireme::nn
