// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include "trireme/kernels/attention.hpp"

namespace trireme::kernels::cuda {

/// [B*T, heads * head_dim] as [B, heads, T, head_dim]: the same memory.
inline at::Tensor by_head(const at::Tensor& x, const AttentionShape& s, std::int64_t heads) {
  return x.view({s.batch, s.seq_len, heads, s.head_dim}).transpose(1, 2);
}

/// [B, heads, T, head_dim] as [B*T, heads * head_dim]: the same memory where a library wrote token by token.
inline at::Tensor by_token(const at::Tensor& x, const AttentionShape& s, std::int64_t heads) {
  return x.transpose(1, 2).reshape({s.batch * s.seq_len, heads * s.head_dim});
}

/// Tensors of queries, keys and values.
struct HeadTensors {
  at::Tensor q, k, v;
};
/// Gradients as a library has them, [B, heads, T, head_dim] with any strides, into rows of heads, rotated back.
void put_gradients(const HeadTensors& from, const AttentionShape& shape, const Rotated& rotated, const HeadTensors& to);

void dense_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const AttentionShape& shape,
                     const at::Tensor& out, const at::Tensor& logsumexp);
void dense_attention_backward(const at::Tensor& d_out, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                              const at::Tensor& out, const at::Tensor& logsumexp, const AttentionShape& shape,
                              const at::Tensor& d_q, const at::Tensor& d_k, const at::Tensor& d_v);

}  // namespace trireme::kernels::cuda
