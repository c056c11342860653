// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "trireme/model/tensor_plan.hpp"
#include "trireme/nn/experts.hpp"
#include "trireme/nn/stage.hpp"
#include "trireme/nn/stage_code.hpp"

/// Partitioned stages for tensor parallelism. Every one is local: exchanges between ranks are verbs of the schedule,
/// between stages.
namespace trireme::nn {

/// The embedding of this rank's part of the vocabulary: its term of the sum over the tensor axis.
class VocabularyEmbedding {
 public:
  VocabularyEmbedding(const model::Sizes& sizes, model::VocabularyPart part) : sizes_(sizes), part_(part) {}
  [[nodiscard]] at::Tensor forward(std::span<const at::Tensor> parameters, const Microbatch& microbatch) const;
  void backward(const at::Tensor& d_out, std::span<const Grad> grads, const Microbatch& microbatch) const;

 private:
  model::Sizes sizes_;
  model::VocabularyPart part_;
};

/// Logits and loss of this rank's part of the vocabulary; the logits of one chunk of tokens exist at a time. Between
/// forward and backward all ranks need every token's maximum and sum: the first chunk is kept until then, the others
/// are recomputed. A single chunk needs no recompute.
class VocabularyHead {
 public:
  /// sizes: of the whole model. chunk_tokens: 0 for chosen.
  VocabularyHead(const model::Sizes& sizes, model::VocabularyPart part, int ranks, std::int64_t chunk_tokens,
                 at::Device device = at::kCPU);
  /// Statistics [N, 3] fp32 (kernels::vocabulary_statistics); in infer the logits of each row's last position, [B,
  /// ceil(vocab / ranks)] fp32. h: [N, D], normed. first_logits: set to an input of backward.
  [[nodiscard]] at::Tensor forward(const at::Tensor& h, std::span<const at::Tensor> parameters,
                                   const Microbatch& microbatch, Mode mode, at::Tensor& first_logits) const;
  /// This rank's term of the gradient by h. softmax: [N, 2] of kernels::combine_statistics.
  [[nodiscard]] at::Tensor backward(const at::Tensor& h, const at::Tensor& softmax,
                                    std::span<const at::Tensor> parameters, std::span<const Grad> grads,
                                    const Microbatch& microbatch, at::Tensor first_logits) const;

 private:
  model::Decoder decoder_;
  model::VocabularyPart part_;
  std::int64_t padded_;
  std::int64_t chunk_tokens_;
};

/// One stage of a model: whole, or between exchanges. Of a layer of experts the parts.
struct Layer {
  std::unique_ptr<Stage> whole;
  std::unique_ptr<StageCode> code;
  std::vector<model::TensorSpec> kept{};  ///< by `code`
  std::optional<Route> route;
  std::optional<HeldExperts> experts;
};

/// The layer of one stage of `model`, as its tensor rank runs it. device: of its tensors.
[[nodiscard]] Layer make_layer(const model::Model& model, const model::Stage& stage, std::int64_t max_seq_len,
                               DType compute, std::int64_t loss_chunk_tokens, at::Device device = at::kCPU);

}  // namespace trireme::nn
