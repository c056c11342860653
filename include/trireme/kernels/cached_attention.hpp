// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "trireme/kernels/attention.hpp"

namespace trireme::kernels {

/// Keys and values of the tokens of B rows so far, [B, kv_heads, places, head_dim] each; position p in place
/// p mod places.
struct KeyValueCache {
  at::Tensor keys, values;
};

/// Puts the keys and values of positions `past`, `past` + 1, ... into the cache; where they are more than there are
/// places, the last ones. k, v: [B*T, kv_heads * head_dim], T = shape.seq_len; rows may be apart.
void store_keys_and_values(const at::Tensor& k, const at::Tensor& v, const AttentionShape& shape, std::int64_t past,
                           const KeyValueCache& cache);

/// Attention of one query a row, that of position `past`, whose own key and value are in the cache already: what
/// `causal_attention` gives its position, from as many products as it sees keys. shape.seq_len = 1. Where the model has
/// a window the cache has at most so many places. q, out: [B, heads * head_dim]. document_begin: int32 [B] on the host,
/// where in its row the document of that token begins; undefined: rows are one document.
void cached_attention(const at::Tensor& q, const KeyValueCache& cache, const AttentionShape& shape, std::int64_t past,
                      const at::Tensor& out, const at::Tensor& document_begin = {});

}  // namespace trireme::kernels
