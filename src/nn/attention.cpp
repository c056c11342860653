// SPDX-License-Identifier: Apache-2.0
#include "trireme/nn/attention.hpp"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include "nn/common.hpp"
#include "trireme/base/error.hpp"
#include "trireme/kernels/attention.hpp"
#include "trireme/kernels/gemm.hpp"
#include "trireme/kernels/rms_norm.hpp"

namespace trireme::nn {
namespace {

/// The columns of q, k and v in q|k|v [B*T, (heads + 2 kv_heads) * head_dim].
struct Parts {
  at::Tensor q, k, v, rotated;  ///< rotated: q and k, the heads that RoPE turns

  Parts(const at::Tensor& qkv, const model::Sizes& s) {
    const std::int64_t q_end = s.heads * s.head_dim;
    const std::int64_t k_end = q_end + s.kv_heads * s.head_dim;
    q = qkv.slice(1, 0, q_end);
    k = qkv.slice(1, q_end, k_end);
    v = qkv.slice(1, k_end);
    rotated = qkv.slice(1, 0, k_end);
  }
};

kernels::AttentionShape shape_of(const Microbatch& m, const model::Sizes& s) {
  return {.batch = m.batch, .seq_len = m.seq_len, .heads = s.heads, .kv_heads = s.kv_heads, .head_dim = s.head_dim};
}

}  // namespace

Attention::Attention(const model::Sizes& sizes, std::int64_t max_seq_len)
    : sizes_(sizes), table_(kernels::rope_table(max_seq_len, sizes.head_dim, sizes.rope_theta, sizes.rope_scaling)) {
  invariant(sizes.kv_heads > 0 && sizes.heads % sizes.kv_heads == 0, "attention: heads is not a multiple of kv_heads");
}

Result Attention::forward(at::Tensor hidden, std::span<const at::Tensor> parameters, const Microbatch& microbatch,
                          Mode mode, Saved& saved) const {
  const PlainOperators guard;
  expect_call(hidden, microbatch, sizes_.hidden, parameters.size(), 5);
  const auto [h, rstd] = norm(hidden, parameters[0], sizes_.norm_eps);
  const at::Tensor qkv = joint_linear(h, parameters.subspan(1, 3));
  const Parts parts(qkv, sizes_);
  kernels::rotate(parts.rotated, table_, microbatch.seq_len, kernels::Rotation::forward);

  const at::Tensor attended = at::empty({hidden.size(0), sizes_.heads * sizes_.head_dim}, hidden.options());
  const at::Tensor logsumexp = at::empty({microbatch.batch, sizes_.heads, microbatch.seq_len}, rstd.options());
  kernels::causal_attention(parts.q, parts.k, parts.v, shape_of(microbatch, sizes_), attended, logsumexp);
  at::Tensor out = mode == Mode::rebuild ? at::Tensor() : kernels::linear_add(attended, parameters[4], hidden);
  if (saves(mode)) saved.tensors = {std::move(hidden), rstd, qkv, attended, logsumexp};
  if (mode == Mode::train_keep_all) saved.tensors.push_back(h);
  return {.hidden = std::move(out)};
}

Result Attention::backward(at::Tensor d_hidden, std::span<const at::Tensor> parameters, std::span<const Grad> grads,
                           const Microbatch& microbatch, Saved saved) const {
  const PlainOperators guard;
  expect_call(d_hidden, microbatch, sizes_.hidden, grads.size(), 5);
  const at::Tensor& x = saved.tensors[0];
  const at::Tensor& rstd = saved.tensors[1];
  const at::Tensor& qkv = saved.tensors[2];
  const at::Tensor& attended = saved.tensors[3];
  const at::Tensor& logsumexp = saved.tensors[4];

  const at::Tensor d_attended = kernels::linear_backward_input(d_hidden, parameters[4]);
  kernels::linear_backward_weight(d_hidden, attended, grads[4]);

  const at::Tensor d_qkv = at::empty_like(qkv);
  const Parts parts(qkv, sizes_);
  const Parts d_parts(d_qkv, sizes_);
  kernels::causal_attention_backward(d_attended, parts.q, parts.k, parts.v, attended, logsumexp,
                                     shape_of(microbatch, sizes_), d_parts.q, d_parts.k, d_parts.v);
  kernels::rotate(d_parts.rotated, table_, microbatch.seq_len, kernels::Rotation::inverse);

  const bool kept_all = saved.tensors.size() > 5;
  joint_backward_weight(d_qkv, kept_all ? saved.tensors[5] : norm_again(x, parameters[0], rstd), grads.subspan(1, 3));
  const at::Tensor d_h = joint_backward_input(d_qkv, parameters.subspan(1, 3));
  kernels::rms_norm_backward(d_h, x, parameters[0], rstd, d_hidden, d_h, grads[0]);
  return {.hidden = d_h};
}

}  // namespace trireme::nn
