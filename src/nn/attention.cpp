// SPDX-License-Identifier: Apache-2.0
#include "trireme/kernels/attention.hpp"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include <array>

#include "nn/common.hpp"
#include "trireme/base/error.hpp"
#include "trireme/kernels/cached_attention.hpp"
#include "trireme/kernels/rms_norm.hpp"
#include "trireme/model/kv_cache.hpp"
#include "trireme/nn/branch.hpp"

namespace trireme::nn {
namespace {

/// The columns of q, k and v in q|k|v [B*T, (heads + 2 kv_heads) * head_dim].
struct Parts {
  at::Tensor q, k, v, qk;  ///< qk: both, the heads that norms and RoPE work on

  Parts(const at::Tensor& qkv, const model::Sizes& s) {
    const std::int64_t q_end = s.heads * s.head_dim;
    const std::int64_t k_end = q_end + s.kv_heads * s.head_dim;
    q = qkv.slice(1, 0, q_end);
    k = qkv.slice(1, q_end, k_end);
    v = qkv.slice(1, k_end);
    qk = qkv.slice(1, 0, k_end);
  }
};

using model::Role;

std::vector<NormedPiece> normed_pieces(const model::Sizes& s, const Slots& slots) {
  std::vector<NormedPiece> pieces;
  if (s.decoder.qk_norm == model::QkNorm::none) return pieces;
  std::int64_t begin = 0;
  for (const auto& [role, heads] : {std::pair{Role::q_norm, s.heads}, {Role::k_norm, s.kv_heads}}) {
    const bool by_head = s.decoder.qk_norm == model::QkNorm::head;
    for (std::int64_t i = 0; i < (by_head ? heads : 1); ++i) {
      const std::int64_t end = begin + (by_head ? 1 : heads) * s.head_dim;
      pieces.push_back({.begin = begin, .end = end, .weight = slots[role], .first = i == 0});
      begin = end;
    }
  }
  return pieces;
}

JointLinear projection_of(const model::Decoder& decoder, const Slots& slots) {
  if (decoder.joint_qkv)
    return {.weights = slots[Role::qkv],
            .count = 1,
            .biases = decoder.qkv_bias ? std::optional(slots[Role::qkv_bias]) : std::nullopt};
  return {.weights = slots[Role::q],
          .count = 3,
          .biases = decoder.qkv_bias ? std::optional(slots[Role::q_bias]) : std::nullopt};
}

OutputLinear output_of(const model::Decoder& decoder, const Slots& slots, bool adds_bias) {
  return {.weight = slots[Role::o],
          .bias = decoder.o_bias ? std::optional(slots[Role::o_bias]) : std::nullopt,
          .scale = decoder.residual_scale,
          .adds_bias = adds_bias};
}

kernels::RopeTable rope_of(const model::Sizes& s, const model::Stage& stage, std::int64_t positions, bool long_context,
                           at::Device device) {
  const bool local = s.decoder.local_rope && stage.window > 0;
  const kernels::RopeTable table = kernels::rope_table(positions, model::rotary_width(s.decoder, s.head_dim),
                                                       local ? s.rope_local_theta : s.rope_theta,
                                                       local ? std::nullopt : s.rope_scaling, long_context);
  return {.cos = table.cos.to(device),
          .sin = table.sin.to(device),
          .head_dim = s.head_dim,
          .adjacent_pairs = s.decoder.adjacent_pairs};
}

}  // namespace

AttentionBranch::AttentionBranch(const model::Sizes& sizes, const model::Stage& stage, std::int64_t max_seq_len,
                                 bool adds_bias, at::Device device)
    : sizes_(sizes),
      window_(stage.window),
      slots_(model::StageKind::attention_branch, sizes.decoder),
      qkv_(projection_of(sizes.decoder, slots_)),
      out_(output_of(sizes.decoder, slots_, adds_bias)),
      pieces_(normed_pieces(sizes, slots_)) {
  invariant(sizes.kv_heads > 0 && sizes.heads % sizes.kv_heads == 0, "attention: heads is not a multiple of kv_heads");
  if (sizes.decoder.learned_positions || !stage.rotates) return;
  table_ = rope_of(sizes, stage, max_seq_len, false, device);
  if (!sizes.rope_scaling || sizes.rope_scaling->type != config::RopeType::longrope) return;
  short_length_ = sizes.rope_scaling->original_max_position_embeddings;
  if (max_seq_len > short_length_) long_table_ = rope_of(sizes, stage, max_seq_len, true, device);
}

kernels::RopeTable AttentionBranch::table_of(const Microbatch& m) const {
  kernels::RopeTable table = long_table_.cos.defined() && m.past + m.seq_len > short_length_ ? long_table_ : table_;
  if (m.past > 0) table.cos = table.cos.slice(0, m.past), table.sin = table.sin.slice(0, m.past);
  return table;
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

at::Tensor AttentionBranch::queries_and_keys(const at::Tensor& qkv, std::span<const at::Tensor> parameters,
                                             const Microbatch& microbatch, const at::Tensor& rstd, bool again) const {
  at::Tensor qk = Parts(qkv, sizes_).qk;
  if (!pieces_.empty()) {
    const at::Tensor raw = qk;
    qk = at::empty({raw.size(0), raw.size(1)}, raw.options());
    for (std::size_t i = 0; i < pieces_.size(); ++i) {
      const NormedPiece& piece = pieces_[i];
      const at::Tensor from = raw.slice(1, piece.begin, piece.end), to = qk.slice(1, piece.begin, piece.end);
      const at::Tensor statistics = rstd.select(0, static_cast<std::int64_t>(i));
      if (again)
        kernels::rms_norm_again(from, parameters[piece.weight], statistics, to, norm_offset());
      else
        kernels::rms_norm(from, parameters[piece.weight], sizes_.norm_eps, to, statistics, norm_offset());
    }
  }
  if (table_.cos.defined()) kernels::rotate(qk, table_of(microbatch), microbatch.seq_len, kernels::Rotation::forward);
  return qk;
}

void AttentionBranch::extend_cache(const at::Tensor& k, const at::Tensor& v, const Microbatch& m,
                                   std::vector<at::Tensor>& cached) const {
  invariant(m.past + m.seq_len <= m.longest && (m.past == 0 || m.seq_len == 1),
            "a key/value cache takes a text, then one token at a time");
  const std::array<std::int64_t, 4> room{m.batch, sizes_.kv_heads, model::cached_tokens(window_, m.longest),
                                         sizes_.head_dim};
  if (m.past == 0 && (cached.empty() || cached.front().sizes() != at::IntArrayRef(room)))
    cached = {at::empty(room, k.options()), at::empty(room, v.options())};
  invariant(cached.size() == 2, "a token finds the keys and values of those before it");
  kernels::store_keys_and_values(k, v, shape_of(m), m.past, {.keys = cached[0], .values = cached[1]});
}

at::Tensor AttentionBranch::forward(const at::Tensor& h, const at::Tensor& residual,
                                    std::span<const at::Tensor> parameters, const Microbatch& microbatch, Mode mode,
                                    std::vector<at::Tensor>& saved) const {
  const at::Tensor qkv = qkv_.forward(h, parameters);
  const auto fp32 = h.options().dtype(at::kFloat);
  at::Tensor rstd;
  if (!pieces_.empty()) rstd = at::empty({static_cast<std::int64_t>(pieces_.size()), h.size(0)}, fp32);
  const std::int64_t q_width = sizes_.heads * sizes_.head_dim;
  const at::Tensor qk = queries_and_keys(qkv, parameters, microbatch, rstd, false);
  const at::Tensor attended = at::empty({h.size(0), q_width}, h.options());
  const at::Tensor q = qk.slice(1, 0, q_width), k = qk.slice(1, q_width), v = Parts(qkv, sizes_).v;
  if (mode == Mode::generate) extend_cache(k, v, microbatch, saved);
  if (microbatch.past > 0) {
    kernels::cached_attention(q, {.keys = saved[0], .values = saved[1]}, shape_of(microbatch), microbatch.past,
                              attended, microbatch.document_begin);
    return out_.forward(attended, residual, parameters);
  }
  const at::Tensor logsumexp = at::empty({microbatch.batch, sizes_.heads, microbatch.seq_len}, fp32);
  kernels::causal_attention(q, k, v, shape_of(microbatch), attended, logsumexp, microbatch.document_begin);
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
  const at::Tensor rstd = pieces_.empty() ? at::Tensor() : saved[3];
  const std::int64_t q_width = sizes_.heads * sizes_.head_dim;
  at::Tensor qk = pieces_.empty() ? Parts(qkv, sizes_).qk : queries_and_keys(qkv, parameters, microbatch, rstd, true);
  const at::Tensor d_y = out_.scaled(d_out);
  const at::Tensor d_attended = out_.backward_input(d_y, parameters);
  const at::Tensor d_qkv = at::empty_like(qkv);
  const Parts d_parts(d_qkv, sizes_);
  kernels::causal_attention_backward(d_attended, qk.slice(1, 0, q_width), qk.slice(1, q_width), Parts(qkv, sizes_).v,
                                     attended, logsumexp, shape_of(microbatch), d_parts.q, d_parts.k, d_parts.v,
                                     microbatch.document_begin);
  qk.reset();
  if (table_.cos.defined())
    kernels::rotate(d_parts.qk, table_of(microbatch), microbatch.seq_len, kernels::Rotation::inverse);
  saved = {d_y, attended, d_qkv};
  if (!pieces_.empty()) {
    // The gradients by the two weights wait for backward_weight.
    std::vector<at::Tensor> d_weights;
    const Parts parts(qkv, sizes_);
    for (std::size_t i = 0; i < pieces_.size(); ++i) {
      const NormedPiece& piece = pieces_[i];
      const at::Tensor d = d_parts.qk.slice(1, piece.begin, piece.end);
      if (piece.first) d_weights.push_back(at::empty({piece.end - piece.begin}, rstd.options()));
      kernels::rms_norm_backward(d, parts.qk.slice(1, piece.begin, piece.end), parameters[piece.weight],
                                 rstd.select(0, static_cast<std::int64_t>(i)), {}, d,
                                 {.tensor = d_weights.back(), .accumulate = !piece.first}, norm_offset());
    }
    saved.insert(saved.end(), d_weights.begin(), d_weights.end());
  }
  return qkv_.backward_input(d_qkv, parameters);
}

void AttentionBranch::backward_weight(const at::Tensor& h, std::span<const Grad> grads,
                                      const std::vector<at::Tensor>& saved) const {
  const at::Tensor& d_y = saved[0];
  const at::Tensor& attended = saved[1];
  const at::Tensor& d_qkv = saved[2];
  out_.backward_weight(d_y, attended, grads);
  qkv_.backward_weight(d_qkv, h, grads);
  std::size_t next = 3;
  for (const NormedPiece& piece : pieces_) {
    if (!piece.first) continue;
    const Grad& grad = grads[piece.weight];
    const at::Tensor& d_weight = saved[next++];
    if (grad.accumulate)
      grad.tensor.add_(d_weight);
    else
      grad.tensor.copy_(d_weight);
  }
}

}  // namespace trireme::nn
