// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "trireme/nn/stage.hpp"

namespace trireme::nn {

/// hidden[n] = embed_tokens[inputs[n]]. Parameters: {embed_tokens [vocab, D]}. Saves nothing: backward needs only the
/// token ids.
class Embedding final : public Stage {
 public:
  Result forward(at::Tensor hidden, std::span<const at::Tensor> parameters, const Microbatch& microbatch, Mode mode,
                 Saved& saved) const override;
  Result backward(at::Tensor d_hidden, std::span<const at::Tensor> parameters, std::span<const Grad> grads,
                  const Microbatch& microbatch, Saved saved) const override;
};

}  // namespace trireme::nn
