// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "trireme/kernels/rope.hpp"
#include "trireme/nn/stage.hpp"

namespace trireme::nn {

/// y = x + o(attention(rope(q(h)), rope(k(h)), v(h))) with h = RMSNorm(x); grouped-query, causal, softmax scale
/// 1/sqrt(head_dim). Parameters: {input_layernorm [D], q [heads*head_dim, D], k, v [kv_heads*head_dim, D], o [D,
/// heads*head_dim]}. Saves x, rstd, q|k|v after RoPE as one [B*T, (heads + 2 kv_heads) * head_dim], the attention's
/// output and its log-sum-exp. h is computed again in backward unless all is kept.
class Attention final : public Stage {
 public:
  Attention(const model::Sizes& sizes, std::int64_t max_seq_len);
  Result forward(at::Tensor hidden, std::span<const at::Tensor> parameters, const Microbatch& microbatch, Mode mode,
                 Saved& saved) const override;
  Result backward(at::Tensor d_hidden, std::span<const at::Tensor> parameters, std::span<const Grad> grads,
                  const Microbatch& microbatch, Saved saved) const override;

 private:
  model::Sizes sizes_;
  kernels::RopeTable table_;
};

}  // namespace trireme::nn
