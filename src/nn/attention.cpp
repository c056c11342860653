// SPDX-License-Identifier: Apache-2.0
#include "trireme/kernels/attention.hpp"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include <array>

#include "nn/common.hpp"
#include "trireme/base/error.hpp"
#include "trireme/kernels/cached_attention.hpp"
#include "trireme/model/kv_cache.hpp"
#include "trireme/nn/branch.hpp"

namespace trireme::nn {

using model::Role;

JointLinear projection_of(const model::Decoder& decoder, const Slots& slots, const model::Fp8Products& fp8) {
  if (decoder.joint_qkv)
    return {.weights = slots[Role::qkv],
            .count = 1,
            .biases = decoder.qkv_bias ? std::optional(slots[Role::qkv_bias]) : std::nullopt,
            .fp8 = fp8.of(Role::qkv)};
  return {.weights = slots[Role::q],
          .count = 3,
          .biases = decoder.qkv_bias ? std::optional(slots[Role::q_bias]) : std::nullopt,
          .fp8 = fp8.of(Role::q)};
}

OutputLinear output_of(const model::Decoder& decoder, const Slots& slots, bool adds_bias,
                       const model::Fp8Products& fp8) {
  return {.weight = slots[Role::o],
          .bias = decoder.o_bias ? std::optional(slots[Role::o_bias]) : std::nullopt,
          .scale = decoder.residual_scale,
          .adds_bias = adds_bias,
          .fp8 = fp8.of(Role::o)};
}

AttentionBranch::AttentionBranch(const model::Sizes& sizes, const model::Stage& stage, std::int64_t max_seq_len,
                                 bool adds_bias, at::Device device)
    : sizes_(sizes),
      window_(stage.window),
      slots_(model::StageKind::attention_branch, sizes.decoder),
      qkv_(projection_of(sizes.decoder, slots_, stage.fp8)),
      out_(output_of(sizes.decoder, slots_, adds_bias, stage.fp8)),
      heads_(sizes, stage, slots_, max_seq_len, {}, device) {
  invariant(sizes.kv_heads > 0 && sizes.heads % sizes.kv_heads == 0, "attention: heads is not a multiple of kv_heads");
}

/// A window as long as the sequence hides nothing.
kernels::AttentionShape AttentionBranch::shape_of(const Microbatch& m) const {
  return {.batch = m.batch,
          .seq_len = m.seq_len,
          .heads = sizes_.heads,
          .kv_heads = sizes_.kv_heads,
          .head_dim = sizes_.head_dim,
          .window = window_ < m.seq_len ? window_ : 0,
          .scale = sizes_.decoder.score_scale,
          .softcap = sizes_.decoder.score_softcap};
}

void extend_cache(const at::Tensor& k, const at::Tensor& v, const kernels::AttentionShape& shape, std::int64_t window,
                  const Microbatch& m, std::vector<at::Tensor>& cached) {
  invariant(m.past + m.seq_len <= m.longest && (m.past == 0 || m.seq_len == 1),
            "a key/value cache takes a text, then one token at a time");
  const std::array<std::int64_t, 4> room{m.batch, shape.kv_heads, model::cached_tokens(window, m.longest),
                                         shape.head_dim};
  if (m.past == 0 && (cached.empty() || cached.front().sizes() != at::IntArrayRef(room)))
    cached = {at::empty(room, k.options()), at::empty(room, v.options())};
  invariant(cached.size() == 2, "a token finds the keys and values of those before it");
  kernels::store_keys_and_values(k, v, shape, m.past, {.keys = cached[0], .values = cached[1]});
}

at::Tensor AttentionBranch::forward(const at::Tensor& h, const at::Tensor& residual,
                                    std::span<const at::Tensor> parameters, const Microbatch& microbatch, Mode mode,
                                    std::vector<at::Tensor>& saved) const {
  const at::Tensor qkv = qkv_.forward(h, parameters);
  const at::Tensor rstd = heads_.new_rstd(h, h.size(0));
  const std::int64_t q_width = sizes_.heads * sizes_.head_dim;
  const ProjectedParts parts(qkv, sizes_);
  const at::Tensor qk = heads_.prepare(parts.qk, parameters, microbatch, rstd, false);
  const at::Tensor q = qk.slice(1, 0, q_width), k = qk.slice(1, q_width);
  if (mode == Mode::generate) extend_cache(k, parts.v, shape_of(microbatch), window_, microbatch, saved);
  if (microbatch.past > 0) {
    const at::Tensor attended = at::empty({h.size(0), q_width}, h.options());
    kernels::cached_attention(q, {.keys = saved[0], .values = saved[1]}, shape_of(microbatch), microbatch.past,
                              attended, microbatch.document_begin);
    return out_.forward(attended, residual, parameters);
  }
  const auto [attended, logsumexp] = kernels::attend(q, k, parts.v, shape_of(microbatch), microbatch.document_begin);
  if (saves(mode)) saved.insert(saved.end(), {qkv, attended, logsumexp});
  if (saves(mode) && rstd.defined()) saved.push_back(rstd);
  if (mode == Mode::rebuild) return {};
  return out_.forward(attended, residual, parameters);
}

at::Tensor AttentionBranch::backward_input(const at::Tensor& d_out, std::span<const at::Tensor> parameters,
                                           const Microbatch& microbatch, std::vector<at::Tensor>& saved) const {
  const at::Tensor qkv = saved[0];
  const at::Tensor attended = saved[1];
  const at::Tensor logsumexp = saved[2];
  const at::Tensor rstd = heads_.norms() ? saved[3] : at::Tensor();
  const ProjectedParts parts(qkv, sizes_);
  const std::int64_t q_width = sizes_.heads * sizes_.head_dim;
  at::Tensor qk = heads_.norms() ? heads_.prepare(parts.qk, parameters, microbatch, rstd, true) : parts.qk;
  const at::Tensor d_y = out_.scaled(d_out);
  const at::Tensor d_attended = out_.backward_input(d_y, parameters);
  const at::Tensor d_qkv = at::empty_like(qkv);
  const ProjectedParts d_parts(d_qkv, sizes_);
  kernels::causal_attention_backward(d_attended, qk.slice(1, 0, q_width), qk.slice(1, q_width), parts.v, attended,
                                     logsumexp, shape_of(microbatch), d_parts.q, d_parts.k, d_parts.v,
                                     microbatch.document_begin, heads_.rotated(microbatch));
  qk.reset();
  // The gradients by the norms' weights wait for backward_weight.
  const std::vector<at::Tensor> d_weights = heads_.norms_backward(d_parts.qk, parts.qk, parameters, rstd);
  saved = {d_y, attended, d_qkv};
  saved.insert(saved.end(), d_weights.begin(), d_weights.end());
  return qkv_.backward_input(d_qkv, parameters);
}

void AttentionBranch::backward_weight(const at::Tensor& h, std::span<const Grad> grads,
                                      const std::vector<at::Tensor>& saved) const {
  const at::Tensor& d_y = saved[0];
  const at::Tensor& attended = saved[1];
  const at::Tensor& d_qkv = saved[2];
  out_.backward_weight(d_y, attended, grads);
  qkv_.backward_weight(d_qkv, h, grads);
  heads_.put_weights(std::span(saved).subspan(3), grads);
}

}  // namespace trireme::nn
