// SPDX-License-Identifier: Apache-2.0
#include "trireme/kernels/attention.hpp"

#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_backward.h>

#include <tuple>

#include "kernels/rows.hpp"

namespace trireme::kernels {
namespace {

/// [B*T, kv_heads * group * head_dim] seen as [B, kv_heads, T, head_dim]: the `member`-th query head of each group.
at::Tensor group_member(const at::Tensor& x, const AttentionShape& s, std::int64_t group, std::int64_t member) {
  const std::int64_t row = x.stride(0);
  return x.as_strided({s.batch, s.kv_heads, s.seq_len, s.head_dim}, {s.seq_len * row, group * s.head_dim, row, 1},
                      x.storage_offset() + member * s.head_dim);
}

}  // namespace

// One call of libtorch's kernel for each member of a group, so that keys and values are never expanded.

void causal_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const AttentionShape& shape,
                      const at::Tensor& out, const at::Tensor& logsumexp) {
  const std::int64_t group = shape.heads / shape.kv_heads;
  const at::Tensor keys = group_member(k, shape, 1, 0);
  const at::Tensor values = group_member(v, shape, 1, 0);
  const at::Tensor lse = logsumexp.view({shape.batch, shape.kv_heads, group, shape.seq_len});
  for (std::int64_t g = 0; g < group; ++g) {
    const auto [o, l] =
        at::_scaled_dot_product_flash_attention_for_cpu(group_member(q, shape, group, g), keys, values, 0.0, true);
    group_member(out, shape, group, g).copy_(o);
    lse.select(2, g).copy_(l);
  }
}

void causal_attention_backward(const at::Tensor& d_out, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                               const at::Tensor& out, const at::Tensor& logsumexp, const AttentionShape& shape,
                               const at::Tensor& d_q, const at::Tensor& d_k, const at::Tensor& d_v) {
  const std::int64_t group = shape.heads / shape.kv_heads;
  const at::Tensor keys = group_member(k, shape, 1, 0);
  const at::Tensor values = group_member(v, shape, 1, 0);
  const at::Tensor lse = logsumexp.view({shape.batch, shape.kv_heads, group, shape.seq_len});
  at::Tensor sum_k, sum_v;
  for (std::int64_t g = 0; g < group; ++g) {
    const auto [dq, dk, dv] = at::_scaled_dot_product_flash_attention_for_cpu_backward(
        group_member(d_out, shape, group, g), group_member(q, shape, group, g), keys, values,
        group_member(out, shape, group, g), lse.select(2, g).contiguous(), 0.0, true);
    group_member(d_q, shape, group, g).copy_(dq);
    sum_k = g == 0 ? dk.to(at::kFloat) : sum_k.add_(dk);
    sum_v = g == 0 ? dv.to(at::kFloat) : sum_v.add_(dv);
  }
  group_member(d_k, shape, 1, 0).copy_(sum_k);
  group_member(d_v, shape, 1, 0).copy_(sum_v);
}

}  // namespace trireme::kernels
