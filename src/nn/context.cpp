// SPDX-License-Identifier: Apache-2.0
#include "trireme/nn/context.hpp"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include <utility>

#include "nn/common.hpp"
#include "trireme/kernels/attention.hpp"
#include "trireme/kernels/cached_attention.hpp"

namespace trireme::nn {

Projection::Projection(const model::Sizes& sizes, const model::Stage& stage, std::int64_t seq_len,
                       const model::ContextPart& part, at::Device device)
    : sizes_(sizes),
      slots_(model::StageKind::projection, sizes.decoder),
      qkv_(projection_of(sizes.decoder, slots_, stage.fp8)) {
  if (sizes.decoder.qk_norm != model::QkNorm::width) heads_.emplace(sizes, stage, slots_, seq_len, part, device);
}

at::Tensor Projection::forward(const at::Tensor& h, const at::Tensor& /*residual*/,
                               std::span<const at::Tensor> parameters, const Microbatch& microbatch, Mode mode,
                               std::vector<at::Tensor>& saved) const {
  at::Tensor qkv = qkv_.forward(h, parameters);
  if (!heads_) return qkv;
  const ProjectedParts parts(qkv, sizes_);
  const at::Tensor rstd = heads_->new_rstd(h, h.size(0));
  if (!norms()) {
    (void)heads_->prepare(parts.qk, parameters, microbatch, rstd, false);
    return qkv;
  }
  const at::Tensor raw = at::empty({parts.qk.size(0), parts.qk.size(1)}, qkv.options());
  raw.copy_(parts.qk);
  parts.qk.copy_(heads_->prepare(raw, parameters, microbatch, rstd, false));
  if (saves(mode)) saved.insert(saved.end(), {raw, rstd});
  return qkv;
}

at::Tensor Projection::backward_input(const at::Tensor& d_qkv, std::span<const at::Tensor> parameters,
                                      const Microbatch& microbatch, std::vector<at::Tensor>& saved) const {
  const at::Tensor raw = norms() ? saved[0] : at::Tensor();
  const at::Tensor rstd = norms() ? saved[1] : at::Tensor();
  std::vector<at::Tensor> d_weights;
  if (heads_) d_weights = heads_->backward(ProjectedParts(d_qkv, sizes_).qk, raw, parameters, microbatch, rstd);
  saved = {d_qkv};
  saved.insert(saved.end(), d_weights.begin(), d_weights.end());
  return qkv_.backward_input(d_qkv, parameters);
}

void Projection::backward_weight(const at::Tensor& h, std::span<const Grad> grads,
                                 const std::vector<at::Tensor>& saved) const {
  qkv_.backward_weight(saved[0], h, grads);
  if (heads_) heads_->put_weights(std::span(saved).subspan(1), grads);
}

Attend::Attend(const model::Sizes& sizes, const model::Stage& stage, const model::ContextPart& part, bool adds_bias)
    : sizes_(sizes),
      window_(stage.window),
      part_(part),
      slots_(model::StageKind::attend, sizes.decoder),
      out_(output_of(sizes.decoder, slots_, adds_bias, stage.fp8)) {}

kernels::AttentionShape Attend::shape_of(const Microbatch& m) const {
  const std::int64_t seq_len = m.seq_len * part_.ranks;
  return {.batch = m.batch,
          .seq_len = seq_len,
          .heads = sizes_.heads,
          .kv_heads = sizes_.kv_heads,
          .head_dim = sizes_.head_dim,
          .window = window_ < seq_len ? window_ : 0,
          .scale = sizes_.decoder.score_scale,
          .softcap = sizes_.decoder.score_softcap,
          .run = part_.ranks > 1 ? part_.run(seq_len) : 0,
          .run_begin = {part_.first_run(seq_len), part_.second_run(seq_len)}};
}

at::Tensor Attend::forward(const at::Tensor& qkv, const at::Tensor& keys, const at::Tensor& residual,
                           std::span<const at::Tensor> parameters, const Microbatch& microbatch, Mode mode,
                           std::vector<at::Tensor>& saved) const {
  const std::int64_t kv_width = sizes_.kv_heads * sizes_.head_dim;
  const ProjectedParts parts(qkv, sizes_);
  const at::Tensor kv = keys.defined() ? keys : parts.kv;
  const at::Tensor k = kv.slice(1, 0, kv_width), v = kv.slice(1, kv_width);
  if (mode == Mode::generate) extend_cache(k, v, shape_of(microbatch), window_, microbatch, saved);
  if (microbatch.past > 0) {
    const at::Tensor attended = at::empty({qkv.size(0), sizes_.heads * sizes_.head_dim}, qkv.options());
    kernels::cached_attention(parts.q, {.keys = saved[0], .values = saved[1]}, shape_of(microbatch), microbatch.past,
                              attended, microbatch.document_begin);
    return out_.forward(attended, residual, parameters);
  }
  const auto [attended, logsumexp] = kernels::attend(parts.q, k, v, shape_of(microbatch), microbatch.document_begin);
  if (saves(mode)) saved.insert(saved.end(), {qkv, attended, logsumexp});
  if (mode == Mode::rebuild) return {};
  return out_.forward(attended, residual, parameters);
}

Attend::Gradients Attend::backward_input(const at::Tensor& d_out, const at::Tensor& keys,
                                         std::span<const at::Tensor> parameters, const Microbatch& microbatch,
                                         std::vector<at::Tensor>& saved) const {
  const at::Tensor qkv = saved[0], attended = saved[1], logsumexp = saved[2];
  const std::int64_t kv_width = sizes_.kv_heads * sizes_.head_dim;
  const at::Tensor d_y = out_.scaled(d_out);
  const at::Tensor d_attended = out_.backward_input(d_y, parameters);
  Gradients d{.qkv = at::empty_like(qkv), .keys = keys.defined() ? at::empty_like(keys) : at::Tensor()};
  const ProjectedParts parts(qkv, sizes_), d_parts(d.qkv, sizes_);
  const at::Tensor kv = keys.defined() ? keys : parts.kv, d_kv = keys.defined() ? d.keys : d_parts.kv;
  kernels::causal_attention_backward(d_attended, parts.q, kv.slice(1, 0, kv_width), kv.slice(1, kv_width), attended,
                                     logsumexp, shape_of(microbatch), d_parts.q, d_kv.slice(1, 0, kv_width),
                                     d_kv.slice(1, kv_width), microbatch.document_begin);
  saved = {d_y, attended};
  return d;
}

void Attend::backward_weight(std::span<const Grad> grads, const std::vector<at::Tensor>& saved) const {
  out_.backward_weight(saved[0], saved[1], grads);
}

CoreAttention::CoreAttention(model::Sizes sizes, const model::Stage& stage, const model::ContextPart& part)
    : sizes_(std::move(sizes)), window_(stage.window), ranks_(part.ranks) {
  sizes_.heads /= ranks_;
  sizes_.kv_heads /= ranks_;
}

kernels::AttentionShape CoreAttention::shape_of(const Microbatch& m) const {
  const std::int64_t seq_len = m.seq_len * ranks_;
  return {.batch = m.batch,
          .seq_len = seq_len,
          .heads = sizes_.heads,
          .kv_heads = sizes_.kv_heads,
          .head_dim = sizes_.head_dim,
          .window = window_ < seq_len ? window_ : 0,
          .scale = sizes_.decoder.score_scale,
          .softcap = sizes_.decoder.score_softcap};
}

at::Tensor CoreAttention::forward(const at::Tensor& qkv, const Microbatch& microbatch, Mode mode,
                                  std::vector<at::Tensor>& saved) const {
  const kernels::AttentionShape shape = shape_of(microbatch);
  const ProjectedParts parts(qkv, sizes_);
  auto [attended, logsumexp] = kernels::attend(parts.q, parts.k, parts.v, shape, microbatch.document_begin);
  if (saves(mode)) saved.insert(saved.end(), {qkv, attended, logsumexp});
  return attended;
}

at::Tensor CoreAttention::backward(const at::Tensor& d_attended, const Microbatch& microbatch,
                                   const std::vector<at::Tensor>& saved) const {
  const ProjectedParts parts(saved[0], sizes_);
  at::Tensor d_qkv = at::empty_like(saved[0]);
  const ProjectedParts d(d_qkv, sizes_);
  kernels::causal_attention_backward(d_attended, parts.q, parts.k, parts.v, saved[1], saved[2], shape_of(microbatch),
                                     d.q, d.k, d.v, microbatch.document_begin);
  return d_qkv;
}

AttentionOutput::AttentionOutput(const model::Sizes& sizes, bool adds_bias, const model::Fp8Products& fp8)
    : slots_(model::StageKind::output, sizes.decoder), out_(output_of(sizes.decoder, slots_, adds_bias, fp8)) {}

at::Tensor AttentionOutput::forward(const at::Tensor& attended, const at::Tensor& residual,
                                    std::span<const at::Tensor> parameters, Mode mode,
                                    std::vector<at::Tensor>& saved) const {
  if (saves(mode)) saved.push_back(attended);
  return mode == Mode::rebuild ? at::Tensor() : out_.forward(attended, residual, parameters);
}

at::Tensor AttentionOutput::backward_input(const at::Tensor& d_y, std::span<const at::Tensor> parameters,
                                           std::vector<at::Tensor>& saved) const {
  const at::Tensor scaled = out_.scaled(d_y);
  saved.insert(saved.begin(), scaled);
  return out_.backward_input(scaled, parameters);
}

void AttentionOutput::backward_weight(std::span<const Grad> grads, const std::vector<at::Tensor>& saved) const {
  out_.backward_weight(saved[0], saved[1], grads);
}

}  // namespace trireme::nn
