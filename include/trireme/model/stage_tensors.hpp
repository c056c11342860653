// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "trireme/base/units.hpp"
#include "trireme/model/keep.hpp"
#include "trireme/model/model.hpp"

/// The tensors of stages by name: those between the stages of a block, and those that a stage keeps for its backward.
namespace trireme::model {

enum class TensorId : std::uint8_t {
  // Between stages.
  residual,         ///< the residual stream: [tokens of the stream, hidden]
  normed,           ///< input of a branch or of the logits
  projected,        ///< q | k | v; of latent attention q | latent | shared key, kept by a whole branch before its norms
  statistics,       ///< of a norm over all heads: sums over the heads of a token, of queries and of keys, fp32 [2, N]
  keys,             ///< keys and values of whole sequences, or their latents: [N, gathered_width]
  attended,         ///< output of attention, before its output projection
  branch_output,    ///< before it is added to the residual stream
  permuted_tokens,  ///< rows of tokens sorted by expert: [R, hidden]
  permuted_probs,   ///< their weights: fp32 [R]
  expert_output,    ///< outputs of the experts for those rows
  logits,           ///< of the first chunk of tokens
  vocabulary,       ///< statistics of the logits, then maximum and sum of their softmax
  // Kept by one stage.
  x,                ///< the residual stream that a stage reads
  norm_statistics,  ///< of a norm: rstd, and the mean of LayerNorm
  norm_weight,
  norm_bias,  ///< of LayerNorm
  post_norm_input,
  post_norm_statistics,
  post_norm_weight,
  post_norm_bias,
  latents,            ///< of latent attention, normed: that of queries, then that of keys and values
  latent_statistics,  ///< rstd of each
  latent_queries,     ///< queries of all heads, after RoPE
  latent_heads,       ///< keys without RoPE and values of all heads; their weights' gradient
  raw_qk,             ///< queries and keys, or their latents, before their norm and RoPE
  qk_statistics,      ///< rstd of each head, or of all queries and of all keys
  q_norm_weight,      ///< of queries or of their latent
  k_norm_weight,
  logsumexp,
  cached_keys,  ///< of earlier tokens, after RoPE
  cached_values,
  gate_up,
  inner,  ///< output of SwiGLU or GELU
  router_logits,
  chosen_experts,
  expert_gate_up,
  expert_inner,
  weighted_expert_inner,  ///< times the weights of the rows
  shared_gate_up,
  shared_gate,  ///< logit of the weight of gated shared experts
  shared_inner,
  weighted_shared_inner,
};
/// TensorIds between stages. They come first.
inline constexpr int tensor_ids = 12;
inline constexpr int all_tensor_ids = static_cast<int>(TensorId::weighted_shared_inner) + 1;

/// Factor of a tensor's size that depends on the microbatch.
enum class Per : std::uint8_t {
  once,
  token,
  stream_token,  ///< a token of this rank's residual stream
  row,           ///< a row that this rank's experts receive
  cached_token   ///< of a text: `cached_tokens`
};
enum class Element : std::uint8_t { compute, fp32, int32 };
struct Size {
  Per per = Per::token;
  std::int64_t width = 0;
  Element element = Element::compute;
};
/// Counts of one microbatch on one rank.
struct Counts {
  std::int64_t tokens = 0, stream_tokens = 0, rows = 0, cached_tokens = 0;
  constexpr Counts(std::int64_t all, std::int64_t on_stream, std::int64_t received)
      : tokens(all), stream_tokens(on_stream), rows(received) {}
  /// As many of each.
  constexpr Counts(std::int64_t each) : tokens(each), stream_tokens(each), rows(each), cached_tokens(each) {}
};
[[nodiscard]] std::int64_t bytes_of(Element element, DType compute);
[[nodiscard]] Bytes bytes_of(const Size& size, const Counts& counts, DType compute);

enum class SavePolicy : std::uint8_t {
  never,
  save,     ///< unless the block is recomputed
  cheap,    ///< with Keep::all only; else the backward rebuilds it
  always,   ///< even where the block is recomputed: a choice that must not be made twice
  kv_cache  ///< from one step of generation to the next
};
[[nodiscard]] bool saves(SavePolicy policy, Keep keep);

/// A tensor that a stage keeps at some time between its forward and the end of its backward.
struct TensorSpec {
  TensorId id;
  Size size;
  SavePolicy policy = SavePolicy::never;
  bool waits = false;     ///< it is kept between the two parts of a split backward: gradients of weights need it
  bool gradient = false;  ///< the gradient by the tensor of that name
};
/// The tensors that a stage keeps, in the order in which nn/ saves them. sizes: those of this rank. Whole stages keep
/// the output of their norm for the gradients of weights, in place of its input and statistics, so that this part reads
/// no values of parameters; the branches of sharded stages get it from a Rebuild.
[[nodiscard]] std::vector<TensorSpec> kept_tensors(StageKind kind, const Sizes& sizes);

/// The tensor that a sharded stage reads, and that an exchange before the stage moves.
[[nodiscard]] TensorId input_of(StageKind kind);
/// The tensor that a sharded stage computes, and that an exchange after the stage moves.
[[nodiscard]] TensorId output_of(StageKind kind);
/// The tensor that the forward of a stage writes: its output, or the residual stream including that.
[[nodiscard]] TensorId result_of(const Stage& stage);
/// The tensor whose gradient the backward of a stage reads: its output, or the residual stream where neither a gather
/// nor a norm is between the two.
[[nodiscard]] TensorId upstream_of(const Stage& stage);

}  // namespace trireme::model
