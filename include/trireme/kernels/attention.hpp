// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cmath>
#include <cstdint>

#include "trireme/kernels/rope.hpp"

namespace trireme::kernels {

/// Grouped-query attention: head h reads key and value head h / (heads / kv_heads).
struct AttentionShape {
  std::int64_t batch = 0, seq_len = 0, heads = 0, kv_heads = 0, head_dim = 0;
  std::int64_t window = 0;     ///< keys that a query sees, its own included; 0: all before it
  double scale = 0;            ///< of q k^T; 0: head_dim^-1/2
  double softcap = 0;          ///< a scaled score s becomes softcap tanh(s / softcap); 0: it stays
  std::int64_t value_dim = 0;  ///< elements of a head of values and of the output; 0: head_dim
  /// Length of each of the two runs of queries of a sequence, which begin at `run_begin` (context parallelism). 0:
  /// every token is a query.
  std::int64_t run = 0;
  std::array<std::int64_t, 2> run_begin{};

  /// Elements of a head of values and of the output.
  [[nodiscard]] std::int64_t value_width() const { return value_dim > 0 ? value_dim : head_dim; }
  /// Queries of a sequence.
  [[nodiscard]] std::int64_t queries() const { return run > 0 ? 2 * run : seq_len; }

  [[nodiscard]] double score_scale() const {
    return scale > 0 ? scale : 1.0 / std::sqrt(static_cast<double>(head_dim));
  }
};

// Causal attention, softmax(scale q k^T) v, without materialising [T, T] (FlashAttention, Dao et al. 2022).
// All fp32 or all bf16; rows may be apart. q: [B*Q, heads * head_dim]; out: [B*Q, heads * value_width()]; k: [B*T,
// kv_heads * head_dim]; v: [B*T, kv_heads * value_width()]; logsumexp: [B, heads, Q] fp32; Q: queries() of each
// sequence of T tokens.
//
// document_begin: int32 [B*Q], always in host memory: index in its row of the first token of each query's document.
// A token attends to its document only, as if every document were a separate sequence; keys of other
// documents or before the window are skipped, block by block. Undefined: rows are one document.

/// Writes out and logsumexp.
void causal_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const AttentionShape& shape,
                      const at::Tensor& out, const at::Tensor& logsumexp, const at::Tensor& document_begin = {});

/// Results of attention, as above.
struct Attended {
  at::Tensor out, logsumexp;
};
/// The same in new tensors. On a device they are the library's own, without a copy.
[[nodiscard]] Attended attend(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                              const AttentionShape& shape, const at::Tensor& document_begin = {});

/// The tables that queries and keys were rotated by before; without cosines they were not.
struct Rotated {
  RopeTable queries, keys;
  [[nodiscard]] bool any() const { return keys.cos.defined(); }
};

/// Writes d_q, d_k and d_v, shaped as q, k and v. `rotated`: computes the gradients of q and k before RoPE; requires
/// that every token is a query.
void causal_attention_backward(const at::Tensor& d_out, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                               const at::Tensor& out, const at::Tensor& logsumexp, const AttentionShape& shape,
                               const at::Tensor& d_q, const at::Tensor& d_k, const at::Tensor& d_v,
                               const at::Tensor& document_begin = {}, const Rotated& rotated = {});

}  // namespace trireme::kernels
