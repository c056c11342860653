// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "nn/logits.hpp"
#include "trireme/nn/norm.hpp"
#include "trireme/nn/stage.hpp"

namespace trireme::nn {

/// Tokens whose logits exist at once where the run file has no value: on the host as many as keep the logits within 64
/// MiB of fp32, at least 256; on a device within 1 GiB of bf16, at least 1024.
[[nodiscard]] std::int64_t chosen_chunk(std::int64_t vocab, at::Device device = at::kCPU);

/// Final norm, logits, softmax cross-entropy. Parameters: {norm..., lm_head [vocab, D]} (tied: embed_tokens). The
/// logits of one chunk of tokens exist at a time: computed, turned into their own gradient in place and consumed, all
/// in backward. So in train mode forward only saves x; backward returns the loss.
class Head final : public Stage {
 public:
  /// chunk_tokens: 0 for chosen_chunk.
  Head(const model::Sizes& sizes, std::int64_t chunk_tokens, at::Device device = at::kCPU);
  Result forward(at::Tensor hidden, std::span<const at::Tensor> parameters, const Microbatch& microbatch, Mode mode,
                 Saved& saved) const override;
  Result backward(at::Tensor d_hidden, std::span<const at::Tensor> parameters, std::span<const Grad> grads,
                  const Microbatch& microbatch, Saved saved) const override;
  [[nodiscard]] std::int64_t chunk_tokens() const { return chunk_tokens_; }

 private:
  std::int64_t hidden_;
  Norm norm_;
  LogitScale scale_;
  std::int64_t chunk_tokens_;
};

}  // namespace trireme::nn
