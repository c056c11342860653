// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "trireme/base/units.hpp"
#include "trireme/kernels/grad.hpp"
#include "trireme/kernels/loss_sums.hpp"
#include "trireme/model/activations.hpp"
#include "trireme/model/model.hpp"

/// Stages with an explicit forward and backward. No autograd graph exists anywhere; no stage keeps a parameter.
namespace trireme::nn {

/// train: a backward follows; saves matrix products and attention (model::Keep::products). train_keep_all: also the
/// outputs of norms and activation functions. rebuild: saves the tensors of train without computing the output, in a
/// recompute. evaluate: the loss only. infer: the logits of each row's last position. generate: for attention, infer
/// with a key/value cache: `saved` holds it from one forward to the next, and is empty before the first. decide: a
/// training forward with recompute: saves only decisions that must not be repeated (model::SavePolicy::always).
enum class Mode { train, train_keep_all, rebuild, evaluate, infer, generate, decide };
[[nodiscard]] constexpr bool saves(Mode mode) { return mode < Mode::evaluate; }

/// B sequences of T tokens, as one list of B*T tokens, row after row.
struct Microbatch {
  at::Tensor inputs;         ///< int32 [B*T]
  at::Tensor targets;        ///< int32 [B*T], -1 if not counted; undefined for infer
  std::int64_t batch = 0;    ///< B
  std::int64_t seq_len = 0;  ///< T: with context parallelism this rank's tokens of each sequence
  /// int32 [B*T]: where in its sequence the document of each token begins (`document_begins`): attention stays within
  /// documents. Of whole sequences where ranks exchange heads. Undefined: it spans the row.
  at::Tensor document_begin{};
  double loss_scale = 1.0;  ///< 1 / non-ignored targets of the global batch: gradients carry it, losses do not
  double z_loss = 0.0;      ///< weight of the squared log-partition of the logits, in training
  /// generate: tokens of each row before `inputs`, whose keys and values are in the cache, and the most that a row will
  /// have. After `past` > 0 tokens follows one.
  std::int64_t past = 0, longest = 0;
  /// Layers with experts, in training: the weight of the sequence-wise balance loss over the sequences of the global
  /// batch, and that of the squared log-partition of the router's logits over its tokens. Both losses carry them.
  double balance_scale = 0.0, router_z_scale = 0.0;
  /// Correction bias of the router, where the layer has one, fp32 [E].
  at::Tensor choice_bias{};
  /// Layers with experts: choices of each expert in the whole sequences, fp32 [B, E], in the backward of
  /// a rank that has a part of their tokens; and the first of the B*T tokens that is on this rank's residual stream.
  at::Tensor loads{};
  std::int64_t first_token = 0;
  /// Layers with experts, in recompute and backward: tokens of each expert. Empty: they are counted, and on a GPU the
  /// host waits for the counts.
  std::span<const std::int64_t> expert_tokens{};
};

using kernels::Grad;

/// Tensors that a stage keeps for its backward, in an order private to the stage. Never a parameter: those may be freed
/// in between.
struct Saved {
  std::vector<at::Tensor> tensors;
};

struct Result {
  /// [B*T, D] in the compute dtype. Head: undefined in train and evaluate; in infer the logits of each row's last
  /// position, [B, vocab] fp32.
  at::Tensor hidden;
  /// From the head: forward in evaluate, if there is no z-loss; backward in train.
  kernels::LossSums loss{};
  /// The same from a head on a device, [2] fp64 there, without a wait of the host: `loss` is 0 then. Undefined on the
  /// host.
  at::Tensor device_loss;
  /// From a moe stage: in a training forward that is not a rebuild how many tokens each expert got.
  std::vector<std::int64_t> expert_tokens{};
  /// From a moe stage: backward, scaled.
  double balance_loss = 0, router_z_loss = 0;
  at::Tensor
      device_router_losses{};  ///< on a GPU both instead, fp64 [2]; undefined if the microbatch has neither weight
};

/// A local piece of a block's forward. Const and without state between calls: one object serves every block and
/// microbatch.
class Stage {
 public:
  virtual ~Stage() = default;

  /// hidden: [B*T, D], undefined for the embedding. parameters: views in the compute dtype, in the order that
  /// model::StageKind documents. Fills `saved` in the modes that save, with exactly the tensors and bytes of
  /// saved_tensors(kind, sizes, B*T, compute, keep), and in `decide` with those of Keep::input; otherwise leaves it
  /// unchanged. In a recompute, `saved` holds the decisions.
  virtual Result forward(at::Tensor hidden, std::span<const at::Tensor> parameters, const Microbatch& microbatch,
                         Mode mode, Saved& saved) const = 0;

  /// d_hidden: gradient of the loss by the stage's output, [B*T, D]; undefined for the head. Writes every gradient in
  /// `grads` (same order as `parameters`). Returns the gradient by the stage's input, undefined for the embedding, and
  /// from the head the loss.
  virtual Result backward(at::Tensor d_hidden, std::span<const at::Tensor> parameters, std::span<const Grad> grads,
                          const Microbatch& microbatch, Saved saved) const = 0;

  /// The two parts of a backward, at any times: first the gradient of the stage's input, as `backward` returns it; then
  /// `grads`, without parameter values. Between them model::pending_tensors replace the saved tensors, with exactly
  /// these bytes. Layers of attention, mlp and moe have them; the others throw BugError.
  virtual Result backward_input(at::Tensor d_hidden, std::span<const at::Tensor> parameters,
                                const Microbatch& microbatch, Saved& saved) const;
  virtual void backward_weight(std::span<const Grad> grads, const Saved& saved) const;
};

/// A whole stage. Sequences can have up to `max_seq_len` tokens. `loss_chunk_tokens`: tokens whose logits exist at
/// once, in the head; 0: chosen so that they stay in cache. device: of its tensors.
[[nodiscard]] std::unique_ptr<Stage> make_stage(const model::Stage& stage, const model::Sizes& sizes,
                                                std::int64_t max_seq_len, DType compute, std::int64_t loss_chunk_tokens,
                                                at::Device device = at::kCPU);

/// The same of a stage of `kind` without a window.
[[nodiscard]] inline std::unique_ptr<Stage> make_stage(model::StageKind kind, const model::Sizes& sizes,
                                                       std::int64_t max_seq_len, DType compute,
                                                       std::int64_t loss_chunk_tokens, at::Device device = at::kCPU) {
  return make_stage(model::Stage{.name = {}, .kind = kind, .parameters = {}}, sizes, max_seq_len, compute,
                    loss_chunk_tokens, device);
}

/// Bytes that forward saves.
using model::saved_bytes;

}  // namespace trireme::nn
