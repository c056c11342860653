// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "trireme/kernels/attention.hpp"

namespace trireme::kernels {

/// Keys and values of the tokens of B rows so far, [B, kv_heads, places, head_dim] and [B, kv_heads, places,
/// value_width()]; position p in place p mod places.
struct KeyValueCache {
  at::Tensor keys, values;
};

/// Puts the keys and values of positions `past`, `past` + 1, ... into the cache; if they are more than there are
/// places, the last ones. k: [B*T, kv_heads * head_dim], v: [B*T, kv_heads * value_width()], T = shape.seq_len; rows
/// may be apart.
void store_keys_and_values(const at::Tensor& k, const at::Tensor& v, const AttentionShape& shape, std::int64_t past,
                           const KeyValueCache& cache);

/// Attention of one query per row, at position `past`, whose key and value are already in the cache: equal to
/// `causal_attention` at that position, computed with visible keys only. shape.seq_len = 1. In a model with a window
/// the cache has at most that many places. q: [B, heads * head_dim], out: [B, heads * value_width()]. document_begin:
/// int32 [B] on the host, begin of the token's document in its row; undefined: rows are one document.
void cached_attention(const at::Tensor& q, const KeyValueCache& cache, const AttentionShape& shape, std::int64_t past,
                      const at::Tensor& out, const at::Tensor& document_begin = {});

}  // namespace trireme::kernels
