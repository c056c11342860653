// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "trireme/nn/stage.hpp"

namespace trireme::nn {

/// Factor of the embedding of a decoder. width: of the residual stream.
class EmbeddingScale {
 public:
  EmbeddingScale(const model::Decoder& decoder, std::int64_t width);
  void apply(const at::Tensor& hidden) const;
  /// The gradient before it; a new tensor unless the scale is 1.
  [[nodiscard]] at::Tensor backward(const at::Tensor& d_hidden) const;

 private:
  [[nodiscard]] double in(at::ScalarType type) const;
  double scale_;
  bool rounded_;  ///< to the compute type
};

/// hidden[n] = scale embed_tokens[inputs[n]]. Parameters: {embed_tokens [vocab, D]}. Saves nothing: backward needs only
/// the token ids.
class Embedding final : public Stage {
 public:
  explicit Embedding(EmbeddingScale scale) : scale_(scale) {}
  Result forward(at::Tensor hidden, std::span<const at::Tensor> parameters, const Microbatch& microbatch, Mode mode,
                 Saved& saved) const override;
  Result backward(at::Tensor d_hidden, std::span<const at::Tensor> parameters, std::span<const Grad> grads,
                  const Microbatch& microbatch, Saved saved) const override;

 private:
  EmbeddingScale scale_;
};

}  // namespace trireme::nn
