// SPDX-License-Identifier: Apache-2.0
#include "trireme/kernels/attention.hpp"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include "nn/common.hpp"
#include "trireme/base/error.hpp"
#include "trireme/kernels/bias.hpp"
#include "trireme/kernels/gemm.hpp"
#include "trireme/nn/branch.hpp"

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

using model::Role;

JointLinear projection_of(const model::Decoder& decoder, const Slots& slots) {
  if (decoder.joint_qkv)
    return {.weights = slots[Role::qkv],
            .count = 1,
            .biases = decoder.qkv_bias ? std::optional(slots[Role::qkv_bias]) : std::nullopt};
  return {.weights = slots[Role::q],
          .count = 3,
          .biases = decoder.qkv_bias ? std::optional(slots[Role::q_bias]) : std::nullopt};
}

}  // namespace

AttentionBranch::AttentionBranch(const model::Sizes& sizes, std::int64_t max_seq_len, bool adds_bias, at::Device device)
    : sizes_(sizes),
      adds_bias_(adds_bias && sizes.decoder.o_bias),
      slots_(model::StageKind::attention_branch, sizes.decoder),
      qkv_(projection_of(sizes.decoder, slots_)) {
  invariant(sizes.kv_heads > 0 && sizes.heads % sizes.kv_heads == 0, "attention: heads is not a multiple of kv_heads");
  if (sizes.decoder.learned_positions) return;
  table_ = kernels::rope_table(max_seq_len, sizes.head_dim, sizes.rope_theta, sizes.rope_scaling);
  table_ = {.cos = table_.cos.to(device), .sin = table_.sin.to(device)};
}

at::Tensor AttentionBranch::forward(const at::Tensor& h, const at::Tensor& residual,
                                    std::span<const at::Tensor> parameters, const Microbatch& microbatch, Mode mode,
                                    std::vector<at::Tensor>& saved) const {
  const at::Tensor qkv = qkv_.forward(h, parameters);
  const Parts parts(qkv, sizes_);
  if (table_.cos.defined()) kernels::rotate(parts.rotated, table_, microbatch.seq_len, kernels::Rotation::forward);

  const at::Tensor attended = at::empty({h.size(0), sizes_.heads * sizes_.head_dim}, h.options());
  const at::Tensor logsumexp =
      at::empty({microbatch.batch, sizes_.heads, microbatch.seq_len}, h.options().dtype(at::kFloat));
  kernels::causal_attention(parts.q, parts.k, parts.v, shape_of(microbatch, sizes_), attended, logsumexp,
                            microbatch.document_begin);
  if (saves(mode)) saved.insert(saved.end(), {qkv, attended, logsumexp});
  if (mode == Mode::rebuild) return {};
  const at::Tensor& out = parameters[slots_[Role::o]];
  at::Tensor y = residual.defined() ? kernels::linear_add(attended, out, residual) : kernels::linear(attended, out);
  if (adds_bias_) kernels::add_bias(y, parameters[slots_[Role::o_bias]]);
  return y;
}

at::Tensor AttentionBranch::backward_input(const at::Tensor& d_y, std::span<const at::Tensor> parameters,
                                           const Microbatch& microbatch, std::vector<at::Tensor>& saved) const {
  const at::Tensor qkv = saved[0];
  const at::Tensor attended = saved[1];
  const at::Tensor logsumexp = saved[2];
  const at::Tensor d_attended = kernels::linear_backward_input(d_y, parameters[slots_[Role::o]]);
  const at::Tensor d_qkv = at::empty_like(qkv);
  const Parts parts(qkv, sizes_);
  const Parts d_parts(d_qkv, sizes_);
  kernels::causal_attention_backward(d_attended, parts.q, parts.k, parts.v, attended, logsumexp,
                                     shape_of(microbatch, sizes_), d_parts.q, d_parts.k, d_parts.v,
                                     microbatch.document_begin);
  if (table_.cos.defined()) kernels::rotate(d_parts.rotated, table_, microbatch.seq_len, kernels::Rotation::inverse);
  saved = {d_y, attended, d_qkv};
  return qkv_.backward_input(d_qkv, parameters);
}

void AttentionBranch::backward_weight(const at::Tensor& h, std::span<const Grad> grads,
                                      const std::vector<at::Tensor>& saved) const {
  const at::Tensor& d_y = saved[0];
  const at::Tensor& attended = saved[1];
  const at::Tensor& d_qkv = saved[2];
  kernels::linear_backward_weight(d_y, attended, grads[slots_[Role::o]]);
  if (slots_.has(Role::o_bias)) kernels::bias_gradient(d_y, grads[slots_[Role::o_bias]]);
  qkv_.backward_weight(d_qkv, h, grads);
}

}  // namespace trireme::nn
