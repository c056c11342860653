// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "nn/linear.hpp"
#include "nn/queries_and_keys.hpp"
#include "trireme/model/tensor_plan.hpp"
#include "trireme/nn/frame.hpp"
#include "trireme/nn/norm.hpp"

/// The stages that more than one file names.
namespace trireme::nn {

/// The norm of a stage's input. Where the stages of a branch run in the same op, it keeps its output for the gradients
/// of their weights.
class NormCode final : public StageCode {
 public:
  explicit NormCode(const model::Sizes& sizes) : norm_(sizes) {}
  void forward(StageFrame& f) const override;
  void rebuild(StageFrame& f) const override;
  void backward_input(StageFrame& f) const override;
  void backward_weight(StageFrame& f) const override;
  void backward(StageFrame& f) const override;

 private:
  Norm norm_;
};

/// The input of a branch that reads the residual stream as it is.
class InputCode final : public StageCode {
 public:
  void forward(StageFrame& f) const override;
  void rebuild(StageFrame& f) const override;
  void backward_input(StageFrame& f) const override;
  void backward_weight(StageFrame& f) const override;
};

/// The norm of a branch's output, and its sum with the residual stream.
class PostNormCode final : public StageCode {
 public:
  explicit PostNormCode(const model::Sizes& sizes) : norm_(sizes) {}
  void forward(StageFrame& f) const override;
  void backward_input(StageFrame& f) const override;
  void backward_weight(StageFrame& f) const override;
  void backward(StageFrame& f) const override;

 private:
  Norm norm_;
};

/// The tensors on both sides of a branch's output: written by its forward, and whose gradient its backward reads.
struct Output {
  model::TensorId result, upstream;
};

/// o(attention(q(h), k(h), v(h))), causal, grouped-query, rotary unless positions are learned.
class AttentionCode final : public StageCode {
 public:
  /// adds_bias: this rank adds the bias of o: one of those that are summed does.
  AttentionCode(const model::Sizes& sizes, const model::Stage& stage, std::int64_t max_seq_len, bool adds_bias,
                Output output, at::Device device);
  void forward(StageFrame& f) const override;
  void backward_input(StageFrame& f) const override;
  void backward_weight(StageFrame& f) const override;

 private:
  model::Sizes sizes_;
  std::int64_t window_;
  Slots slots_;
  JointLinear qkv_;
  OutputLinear out_;
  QueriesAndKeys heads_;
  Output output_;
};

/// down(activation(gate(h), up(h))), or down(activation(up(h))) without a gate.
class MlpCode final : public StageCode {
 public:
  /// adds_bias: this rank adds the bias of down.
  MlpCode(const model::Decoder& decoder, bool adds_bias, const model::Fp8Products& fp8, Output output);
  void forward(StageFrame& f) const override;
  void backward_input(StageFrame& f) const override;
  void backward_weight(StageFrame& f) const override;

 private:
  model::Activation activation_;
  Slots slots_;
  JointLinear in_;
  OutputLinear out_;
  Output output_;
};

/// The shape of attention in a stage. A window as long as the sequence hides nothing.
[[nodiscard]] kernels::AttentionShape attention_of(const model::Sizes& sizes, std::int64_t window, std::int64_t batch,
                                                   std::int64_t seq_len);
/// Attention, over the key/value cache if there is one. Keeps its output and log-sum-exp for its backward.
[[nodiscard]] at::Tensor attend(const StageFrame& f, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                const kernels::AttentionShape& shape, std::int64_t window);

/// Latent attention (model::Latent): the whole branch, or projection and attend.
[[nodiscard]] std::unique_ptr<StageCode> make_latent_attention_code(const model::Model& model,
                                                                    const model::Stage& stage, std::int64_t max_seq_len,
                                                                    at::Device device);

/// The stages of attention behind exchanges: projection, qk_norm, attend, core_attention and output.
[[nodiscard]] std::unique_ptr<StageCode> make_attention_code(const model::Model& model, const model::Stage& stage,
                                                             std::int64_t seq_len, at::Device device);

/// The embedding, of a part of the vocabulary where ranks share it; learned positions.
[[nodiscard]] std::unique_ptr<StageCode> make_embedding_code(const model::Model& model, const model::Stage& stage);
[[nodiscard]] std::unique_ptr<StageCode> make_positions_code(const model::Model& model);

/// The head, and its logits behind an exchange. chunk_tokens: tokens whose logits exist at once; 0: chosen.
[[nodiscard]] std::unique_ptr<StageCode> make_head_code(const model::Model& model, const model::Stage& stage,
                                                        std::int64_t chunk_tokens, at::Device device);

/// The stages of a layer of experts behind its norm: router, experts and merge.
[[nodiscard]] std::unique_ptr<StageCode> make_expert_code(const model::Model& model, const model::Stage& stage,
                                                          model::StageKind kind);

}  // namespace trireme::nn
