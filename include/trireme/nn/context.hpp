// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "trireme/model/context.hpp"
#include "trireme/nn/branch.hpp"

/// Parts of an AttentionBranch under context parallelism, or with a norm over heads that tensor ranks share.
/// Projection, Attend and AttentionOutput see this rank's tokens. Before Attend the keys and values of other ranks are
/// gathered; CoreAttention sees whole sequences instead, of a part of the heads.
namespace trireme::nn {

/// h to q|k|v as attention reads them, or with a norm over all heads as QkNorm does. Saves nothing; with a norm of
/// each head q|k before it, and the rstd of each of their pieces, [pieces, N]. Parameters: roles_of(projection).
class Projection final : public Branch {
 public:
  /// seq_len: of whole sequences.
  Projection(const model::Sizes& sizes, const model::Stage& stage, std::int64_t seq_len, const model::ContextPart& part,
             at::Device device = at::kCPU);
  [[nodiscard]] std::size_t products() const override { return norms() ? 2 : 0; }
  at::Tensor forward(const at::Tensor& h, const at::Tensor& residual, std::span<const at::Tensor> parameters,
                     const Microbatch& microbatch, Mode mode, std::vector<at::Tensor>& saved) const override;
  /// d_qkv: the gradient by what forward returned, which this overwrites.
  at::Tensor backward_input(const at::Tensor& d_qkv, std::span<const at::Tensor> parameters,
                            const Microbatch& microbatch, std::vector<at::Tensor>& saved) const override;
  void backward_weight(const at::Tensor& h, std::span<const Grad> grads,
                       const std::vector<at::Tensor>& saved) const override;

 private:
  [[nodiscard]] bool norms() const { return heads_ && heads_->norms(); }

  model::Sizes sizes_;
  Slots slots_;
  JointLinear qkv_;
  std::optional<QueriesAndKeys> heads_;  ///< absent: QkNorm behind it does their work
};

/// o(attention(q, keys, values)) of this rank's queries over the keys and values of whole sequences: its own where no
/// rank has others. Saves q|k|v, the attention's output, its log-sum-exp. Parameters: roles_of(attend).
class Attend {
 public:
  Attend(const model::Sizes& sizes, const model::Stage& stage, const model::ContextPart& part, bool adds_bias);

  /// qkv: of the projection. keys: k|v of whole sequences, [B*T, 2 kv_heads * head_dim]; undefined for those in qkv.
  /// As Branch::forward else.
  [[nodiscard]] at::Tensor forward(const at::Tensor& qkv, const at::Tensor& keys, const at::Tensor& residual,
                                   std::span<const at::Tensor> parameters, const Microbatch& microbatch, Mode mode,
                                   std::vector<at::Tensor>& saved) const;
  struct Gradients {
    at::Tensor qkv;   ///< of q written, room for those of k and v; these written, too, where there are no `keys`
    at::Tensor keys;  ///< by the keys and values of whole sequences: this rank's term of a sum
  };
  [[nodiscard]] Gradients backward_input(const at::Tensor& d_y, const at::Tensor& keys,
                                         std::span<const at::Tensor> parameters, const Microbatch& microbatch,
                                         std::vector<at::Tensor>& saved) const;
  void backward_weight(std::span<const Grad> grads, const std::vector<at::Tensor>& saved) const;

 private:
  [[nodiscard]] kernels::AttentionShape shape_of(const Microbatch& microbatch) const;

  model::Sizes sizes_;
  std::int64_t window_;
  model::ContextPart part_;
  Slots slots_;
  OutputLinear out_;
};

/// attention(q, k, v) of this rank's part of the heads over whole sequences. Saves q|k|v, its output, its log-sum-exp.
/// Has no parameters.
class CoreAttention {
 public:
  /// sizes: of all context ranks.
  CoreAttention(model::Sizes sizes, const model::Stage& stage, const model::ContextPart& part);

  /// qkv: [B*T, (heads + 2 kv_heads) / ranks * head_dim] of whole sequences of T tokens. [B*T, heads / ranks *
  /// head_dim].
  [[nodiscard]] at::Tensor forward(const at::Tensor& qkv, const Microbatch& microbatch, Mode mode,
                                   std::vector<at::Tensor>& saved) const;
  /// The gradient by qkv.
  [[nodiscard]] at::Tensor backward(const at::Tensor& d_attended, const Microbatch& microbatch,
                                    const std::vector<at::Tensor>& saved) const;

 private:
  [[nodiscard]] kernels::AttentionShape shape_of(const Microbatch& microbatch) const;

  model::Sizes sizes_;  ///< heads and kv_heads: this rank's part
  std::int64_t window_;
  int ranks_;
};

/// o(attended). Saves attended. Parameters: roles_of(output).
class AttentionOutput {
 public:
  AttentionOutput(const model::Sizes& sizes, bool adds_bias, const model::Fp8Products& fp8);
  /// As Branch::forward.
  [[nodiscard]] at::Tensor forward(const at::Tensor& attended, const at::Tensor& residual,
                                   std::span<const at::Tensor> parameters, Mode mode,
                                   std::vector<at::Tensor>& saved) const;
  [[nodiscard]] at::Tensor backward_input(const at::Tensor& d_y, std::span<const at::Tensor> parameters,
                                          std::vector<at::Tensor>& saved) const;
  void backward_weight(std::span<const Grad> grads, const std::vector<at::Tensor>& saved) const;

 private:
  Slots slots_;
  OutputLinear out_;
};

}  // namespace trireme::nn
