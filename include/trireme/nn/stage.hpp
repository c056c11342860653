// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>

#include "trireme/kernels/grad.hpp"
#include "trireme/model/model.hpp"

/// Inputs of stages, which have an explicit forward and backward. No autograd graph exists anywhere.
namespace trireme::nn {

/// train: a backward follows; saves matrix products and attention (model::Keep::products). train_keep_all: also the
/// outputs of norms and activation functions. rebuild: saves the tensors of train without computing the output, in a
/// recompute. evaluate: the loss only. infer: the logits of each row's last position. generate: for attention, infer
/// with a key/value cache, which is kept from one forward to the next. decide: a training forward with recompute: saves
/// only decisions that must not be repeated (model::SavePolicy::always).
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

}  // namespace trireme::nn
