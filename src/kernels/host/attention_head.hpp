// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "kernels/simd/rows.hpp"
#include "trireme/kernels/attention.hpp"

/// Attention of one key and value head and the query heads that share it, in blocks: everything in fp32, whatever the
/// data type.
namespace trireme::kernels {

inline constexpr std::int64_t query_block = 64;
inline constexpr std::int64_t key_block = 512;

/// seq_len rounded up to whole query blocks: rows beyond seq_len are zero, so that few shapes of products occur.
inline std::int64_t padded_length(const AttentionShape& s) {
  return (s.seq_len + query_block - 1) / query_block * query_block;
}

/// What scores are multiplied by.
inline float scale_of(const AttentionShape& s) {
  return s.scale > 0 ? static_cast<float>(s.scale) : 1.0F / std::sqrt(static_cast<float>(s.head_dim));
}

/// One head of one sequence inside [B*T, heads * head_dim].
template <class T>
struct Head {
  T* data;
  std::int64_t stride;

  Head(Rows<T> rows, const AttentionShape& s, std::int64_t sequence, std::int64_t head)
      : data(rows[sequence * s.seq_len] + head * s.head_dim), stride(rows.stride) {}
};

/// Copies a head to fp32 [padded, head_dim], zeros after seq_len.
template <class T>
void pack(Head<T> head, const AttentionShape& s, float* to) {
  for (std::int64_t t = 0; t < s.seq_len; ++t) {
    for (std::int64_t d = 0; d < s.head_dim; ++d) to[t * s.head_dim + d] = get(head.data[t * head.stride + d]);
  }
  std::fill(to + s.seq_len * s.head_dim, to + padded_length(s) * s.head_dim, 0.0F);
}

/// Where a block of `query_block` queries looks: the first key that each of them sees. They never fall from one query
/// to the next.
struct FirstKeys {
  std::int64_t of[query_block] = {};

  /// document_begin: of this sequence, or null. begin: the block's first query; those after seq_len are like the last.
  FirstKeys(const std::int32_t* document_begin, std::int64_t begin, const AttentionShape& s) {
    if (document_begin == nullptr && s.window == 0) return;
    for (std::int64_t r = 0; r < query_block; ++r) {
      const std::int64_t query = std::min(begin + r, s.seq_len - 1);
      if (document_begin != nullptr) of[r] = document_begin[query];
      if (s.window > 0) of[r] = std::max(of[r], query - s.window + 1);
    }
  }
  /// The first block of keys that any query sees: the multiple of query_block before its first.
  [[nodiscard]] std::int64_t block() const { return of[0] / query_block * query_block; }
};

/// Floats of workspace that a worker needs.
std::int64_t forward_workspace(const AttentionShape& s);
std::int64_t backward_workspace(const AttentionShape& s);

template <class T>
struct ForwardArguments {
  Rows<const T> q, k, v;
  Rows<T> out;
  float* logsumexp;
  const std::int32_t* document_begin;  ///< [B*T], or null
};
template <class T>
void forward_heads(const ForwardArguments<T>& arguments, const AttentionShape& s, std::int64_t sequence,
                   std::int64_t kv_head, float* workspace);

template <class T>
struct BackwardArguments {
  Rows<const T> d_out, q, k, v, out;
  const float* logsumexp;
  Rows<T> d_q, d_k, d_v;
  const std::int32_t* document_begin;  ///< [B*T], or null
};
template <class T>
void backward_heads(const BackwardArguments<T>& arguments, const AttentionShape& s, std::int64_t sequence,
                    std::int64_t kv_head, float* workspace);

}  // namespace trireme::kernels
