// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "trireme/base/units.hpp"
#include "trireme/model/model.hpp"

namespace trireme::model {

/// Tensors that a block keeps between forward and backward.
enum class Keep {
  /// Only what the block read: its forward runs again before its backward ("activation checkpointing", Chen et al.
  /// 2016).
  input,
  /// Tensors expensive per byte: matrix products, attention and the block's input. Cheap ones, the outputs of norms, of
  /// SwiGLU and of RoPE, are recomputed inside backward (Korthikanti et al. 2022).
  products,
  /// All that backward reads: products, and the outputs of norms and of SwiGLU.
  all,
  /// No backward follows: the keys and values of attention, for the tokens that the next forward adds (`kv_cache.hpp`).
  kv_cache,
};

/// Bytes of each tensor that a stage saves for its backward, in nn's order, for a microbatch of `tokens` (B*T) tokens.
/// Equal to what `nn/` saves, to the byte. attention: x, rstd, q|k|v, the attention's output, the log-sum-exp of every
/// head, with a norm of queries and keys the rstd of every head of theirs (or of all of them together); a
/// norm of the branch's output adds that and its rstd, and a branch that reads x itself has no rstd of it; mlp: x,
/// rstd, gate|up; head: x. rstd and log-sum-exp are fp32. `all` adds the norm's output to attention, and to mlp that of
/// SwiGLU or GELU and the norm's; moe: what route saves, gate|up of every token's experts. Of what expert parallelism
/// cuts that into: route: x, rstd, the router's logits, fp32, the experts of every token, int32, of shared experts
/// gate|up and where they are gated the logit of that, fp32; experts, where `tokens` are the rows that this rank's
/// experts got: the rows, their weights, fp32, gate|up. What tensor parallelism cuts them into saves the same between
/// them, but never the gathered input of a branch. So does what context parallelism cuts attention into, but for a norm
/// of queries and keys: then those are saved before it, by the projection or by qk_norm, and behind it; and where heads
/// are exchanged for the attention's output, which core_attention saves by heads and output by tokens. `keep` is
/// neither input, which is a block's affair, nor kv_cache.
[[nodiscard]] std::vector<Bytes> saved_tensors(StageKind kind, const Sizes& sizes, std::int64_t tokens, DType compute,
                                               Keep keep = Keep::products);

/// Bytes of tensors that a stage keeps although it will be recomputed (Keep::input): of experts the choice of each
/// token, int32 [tokens, per_token]. Empty for the others.
[[nodiscard]] std::vector<Bytes> decided_tensors(StageKind kind, const Sizes& sizes, std::int64_t tokens);

/// Tensors kept between the two parts of a stage's backward: each tensor, and how many bytes of them its `keep` has not
/// saved already. Whole stages keep the norm's output in place of x and rstd, so that weight reads no parameter values:
/// attention: norm's output, d_y, the attention's output, d_q|k|v; mlp: norm's output, d_y, inner, d_gate|up; both the
/// gradients of their norms' own parameters, fp32. Without a norm of the input that is x itself. Pieces of tensor
/// parallelism: the branch without the norm's, the norm x and rstd, which a recompute_norm reads; qk_norm what it saved
/// and the gradients by its weights. Of context parallelism: the projection d_q|k|v, attend and output d_y and the
/// attention's output.
struct Pending {
  std::vector<Bytes> tensors;
  Bytes fresh;
};
[[nodiscard]] Pending pending_tensors(StageKind kind, const Sizes& sizes, std::int64_t tokens, DType compute,
                                      Keep keep);

/// Whether a block is worth computing again: it keeps more than it read.
[[nodiscard]] bool recomputes(const ComputeBlock& block);

/// Bytes that a stage saves for its backward: the sum of `saved_tensors`.
[[nodiscard]] Bytes saved_bytes(StageKind kind, const Sizes& sizes, std::int64_t tokens, DType compute,
                                Keep keep = Keep::products);

}  // namespace trireme::model
