// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "trireme/model/model.hpp"

/// The tensors between the stages of a block, by name, and which of them each sharded stage reads and computes.
namespace trireme::model {

enum class TensorId : std::uint8_t {
  residual,         ///< the residual stream: [tokens of the stream, hidden]
  normed,           ///< input of a branch or of the logits
  projected,        ///< q | k | v
  statistics,       ///< of a norm over all heads: sums over the heads of a token, of queries and of keys, fp32 [2, N]
  keys,             ///< keys and values of whole sequences: [N, 2 kv_heads * head_dim]
  attended,         ///< output of attention, before its output projection
  branch_output,    ///< before it is added to the residual stream
  permuted_tokens,  ///< rows of tokens sorted by expert: [R, hidden]
  permuted_probs,   ///< their weights: fp32 [R]
  expert_output,    ///< outputs of the experts for those rows
  logits,           ///< of the first chunk of tokens
  vocabulary        ///< statistics of the logits, then maximum and sum of their softmax
};
inline constexpr int tensor_ids = 12;

/// The tensor that a sharded stage reads, and that an exchange before the stage moves.
[[nodiscard]] TensorId input_of(StageKind kind);
/// The tensor that a sharded stage computes, and that an exchange behind the stage moves.
[[nodiscard]] TensorId output_of(StageKind kind);
/// The tensor that the forward of a stage writes: its output, or the residual stream including that.
[[nodiscard]] TensorId result_of(const Stage& stage);
/// The tensor whose gradient the backward of a stage reads: its output, or the residual stream where neither a gather
/// nor a norm is between the two.
[[nodiscard]] TensorId upstream_of(const Stage& stage);

}  // namespace trireme::model
