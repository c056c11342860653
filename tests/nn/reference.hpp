// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/logsumexp.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/outer.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/rsqrt.h>
#include <ATen/ops/silu.h>

#include <cmath>
#include <limits>
#include <vector>

#include "nn/whole_stage.hpp"
#include "support/tensors.hpp"
#include "trireme/model/architecture.hpp"

/// Each stage written a second time, from Hugging Face's modeling_llama, as libtorch expressions in fp64 under
/// autograd; and what the tests need to run a stage.
namespace trireme::test {

/// Odd sizes: head_dim is not hidden / heads, heads share keys and values, nothing is a multiple of 64.
inline model::Sizes odd_sizes() {
  return {.vocab = 101,
          .hidden = 36,
          .intermediate = 50,
          .layers = 2,
          .heads = 6,
          .kv_heads = 2,
          .head_dim = 10,
          .norm_eps = 1e-3,
          .rope_theta = 300};
}

/// GPT-2's decoder, with odd_sizes' lengths.
inline model::Sizes gpt2_sizes() {
  model::Sizes s = odd_sizes();
  s.heads = s.kv_heads = 4;
  s.head_dim = 9;
  s.positions = 23;
  s.decoder = model::architecture("gpt2").decoder;
  return s;
}

/// Latent attention with values narrower or wider than keys, with and without a latent of queries.
inline model::Sizes latent_sizes(std::int64_t q_rank, std::int64_t value) {
  model::Sizes s = odd_sizes();
  s.kv_heads = s.heads;
  s.decoder.latent = model::Latent{.q_rank = q_rank, .kv_rank = 11, .nope = 5, .rope = 4, .value = value};
  s.head_dim = 9;
  s.decoder.adjacent_pairs = q_rank > 0;
  return s;
}

/// Seven experts, three of them for each token.
inline model::Sizes expert_sizes(bool normalized = true) {
  model::Sizes s = odd_sizes();
  s.decoder.experts = model::Experts{.count = 7, .per_token = 3, .size = 10, .normalized = normalized};
  return s;
}

/// Sizes whose parameters lie one right after the other in a flat buffer.
inline model::Sizes even_sizes() {
  return {.vocab = 128,
          .hidden = 64,
          .intermediate = 96,
          .layers = 2,
          .heads = 4,
          .kv_heads = 2,
          .head_dim = 16,
          .norm_eps = 1e-5,
          .rope_theta = 10000};
}

/// Parameters of one stage as views into one flat buffer, each at a multiple of 64 elements; their gradients likewise
/// in fp32.
struct Flat {
  at::Tensor buffer, grad_buffer;
  std::vector<at::Tensor> parameters;
  std::vector<nn::Grad> grads;
};

inline std::vector<std::int64_t> shape_of(model::Role role, const model::Sizes& s) {
  using enum model::Role;
  const std::int64_t d = s.hidden, i = s.intermediate, q_rows = s.heads * s.head_dim, kv_rows = s.kv_heads * s.head_dim;
  switch (role) {
    case embedding:
    case head: return {s.vocab, d};
    case positions: return {s.positions, d};
    case q: return {q_rows, d};
    case k:
    case v: return {kv_rows, d};
    case qkv: return {q_rows + 2 * kv_rows, d};
    case q_bias: return {q_rows};
    case k_bias:
    case v_bias: return {kv_rows};
    case qkv_bias: return {q_rows + 2 * kv_rows};
    case q_norm: return {s.decoder.qk_norm == model::QkNorm::head ? s.head_dim : q_rows};
    case k_norm: return {s.decoder.qk_norm == model::QkNorm::head ? s.head_dim : kv_rows};
    case q_a: return {s.decoder.latent->q_rank, d};
    case q_a_norm: return {s.decoder.latent->q_rank};
    case q_b: return {q_rows, s.decoder.latent->q_rank};
    case kv_a: return {s.decoder.latent->kv_rank + s.decoder.latent->rope, d};
    case kv_a_norm: return {s.decoder.latent->kv_rank};
    case kv_b: return {s.heads * s.decoder.latent->expanded(), s.decoder.latent->kv_rank};
    case o: return {d, s.heads * s.value_dim()};
    case gate:
    case up: return {i, d};
    case gate_bias:
    case up_bias: return {i};
    case down: return {d, i};
    case router: return {s.decoder.experts->count, d};
    case router_bias: return {s.decoder.experts->count};
    case shared_weight: return {1, d};
    case shared_gate:
    case shared_up: return {s.decoder.experts->shared_size, d};
    case shared_down: return {d, s.decoder.experts->shared_size};
    case expert_gate:
    case expert_up: return {s.decoder.experts->size, d};
    case expert_down: return {d, s.decoder.experts->size};
    default: return {d};  // norms and biases on the residual stream
  }
}

inline std::vector<std::vector<std::int64_t>> shapes_of(model::StageKind kind, const model::Sizes& s) {
  std::vector<std::vector<std::int64_t>> shapes;
  for (const model::Role role : model::roles_of(kind, s.decoder)) shapes.push_back(shape_of(role, s));
  return shapes;
}

/// Weights of a trained look: norms spread around 1, q and k large, so that attention is not uniform and a wrong RoPE
/// or eps shows.
inline at::Tensor fill(model::Role role, const std::vector<std::int64_t>& shape) {
  using enum model::Role;
  if (shape.size() == 1) return 1 + 0.5 * at::randn(shape);
  return (role == q || role == k || role == qkv || role == q_b ? 0.5 : 0.15) * at::randn(shape);
}

/// Gradients start as NaN if they are to be overwritten, and as 1 if they accumulate.
inline Flat flat(model::StageKind kind, const model::Sizes& sizes, at::ScalarType type, bool accumulate) {
  const std::vector<model::Role> roles = model::roles_of(kind, sizes.decoder);
  const auto shapes = shapes_of(kind, sizes);
  std::vector<std::int64_t> offsets{0};
  std::vector<at::Tensor> values;
  for (std::size_t i = 0; i < shapes.size(); ++i) {
    values.push_back(fill(roles[i], shapes[i]));
    offsets.push_back(offsets.back() + (values.back().numel() + 63) / 64 * 64);
  }
  Flat f;
  f.buffer = at::full({offsets.back()}, 0, at::TensorOptions(type));
  f.grad_buffer = at::full({offsets.back()}, accumulate ? 1.0 : std::numeric_limits<double>::quiet_NaN(),
                           at::TensorOptions(at::kFloat));
  for (std::size_t i = 0; i < shapes.size(); ++i) {
    const auto view = [&](const at::Tensor& all) {
      return all.slice(0, offsets[i], offsets[i] + values[i].numel()).view(shapes[i]);
    };
    f.parameters.push_back(view(f.buffer));
    f.parameters.back().copy_(values[i]);
    f.grads.push_back({.tensor = view(f.grad_buffer), .accumulate = accumulate});
  }
  return f;
}

inline nn::Microbatch microbatch(std::int64_t batch, std::int64_t seq_len, std::int64_t vocab) {
  nn::Microbatch m{.inputs = at::randint(0, vocab, {batch * seq_len}, at::kInt),
                   .targets = at::randint(0, vocab, {batch * seq_len}, at::kInt),
                   .batch = batch,
                   .seq_len = seq_len};
  for (std::int64_t n = 1; n < batch * seq_len; n += 4) m.targets[n] = -1;
  m.loss_scale = 1.0 / (m.targets >= 0).sum().item<double>();
  return m;
}

inline at::Tensor ref_norm(const at::Tensor& x, const at::Tensor& weight, double eps) {
  return weight * (x * at::rsqrt(x.pow(2).mean(-1, true) + eps));
}

/// x: [B, heads, T, head_dim]. Angles in fp32, as Hugging Face computes them.
inline at::Tensor ref_rope(const at::Tensor& x, double theta) {
  const std::int64_t d = x.size(3);
  const at::Tensor inv_freq = at::pow(theta, -at::arange(0, d, 2, at::kFloat) / d);
  const at::Tensor half = at::outer(at::arange(x.size(2), at::kFloat), inv_freq).to(at::kDouble);
  const at::Tensor angle = at::cat({half, half}, -1);
  const at::Tensor rotated = at::cat({-x.slice(-1, d / 2), x.slice(-1, 0, d / 2)}, -1);
  return x * angle.cos() + rotated * angle.sin();
}

inline at::Tensor ref_attention(const at::Tensor& x, const std::vector<at::Tensor>& p, const model::Sizes& s,
                                const nn::Microbatch& m) {
  const at::Tensor h = ref_norm(x, p[0], s.norm_eps);
  const auto split = [&](const at::Tensor& y, std::int64_t heads) {
    return y.view({m.batch, m.seq_len, heads, s.head_dim}).transpose(1, 2);
  };
  const at::Tensor q = ref_rope(split(h.matmul(p[1].t()), s.heads), s.rope_theta);
  const at::Tensor k =
      ref_rope(split(h.matmul(p[2].t()), s.kv_heads), s.rope_theta).repeat_interleave(s.heads / s.kv_heads, 1);
  const at::Tensor v = split(h.matmul(p[3].t()), s.kv_heads).repeat_interleave(s.heads / s.kv_heads, 1);
  const at::Tensor future = at::ones({m.seq_len, m.seq_len}, at::kBool).triu(1);
  const at::Tensor scores = q.matmul(k.transpose(2, 3)) / std::sqrt(static_cast<double>(s.head_dim));
  const at::Tensor out =
      scores.masked_fill(future, -INFINITY).softmax(-1).matmul(v).transpose(1, 2).reshape({x.size(0), -1});
  return x + out.matmul(p[4].t());
}

inline at::Tensor ref_mlp(const at::Tensor& x, const std::vector<at::Tensor>& p, const model::Sizes& s) {
  const at::Tensor h = ref_norm(x, p[0], s.norm_eps);
  return x + (at::silu(h.matmul(p[1].t())) * h.matmul(p[2].t())).matmul(p[3].t());
}

inline at::Tensor ref_logits(const at::Tensor& x, const std::vector<at::Tensor>& p, const model::Sizes& s) {
  return ref_norm(x, p[0], s.norm_eps).matmul(p[1].t());
}

/// Sum of the negative log likelihoods.
inline at::Tensor ref_head(const at::Tensor& x, const std::vector<at::Tensor>& p, const model::Sizes& s,
                           const nn::Microbatch& m) {
  return at::cross_entropy_loss(ref_logits(x, p, s), m.targets.to(at::kLong), {}, /*reduction=sum*/ 2, -1);
}

/// Sum of z_loss * log(Z)^2 over the counted targets.
inline at::Tensor ref_z_loss(const at::Tensor& x, const std::vector<at::Tensor>& p, const model::Sizes& s,
                             const nn::Microbatch& m) {
  return m.z_loss * (at::logsumexp(ref_logits(x, p, s), 1).pow(2) * (m.targets >= 0)).sum();
}

/// Copies in fp64 that autograd follows.
inline std::vector<at::Tensor> leaves(const std::vector<at::Tensor>& parameters) {
  std::vector<at::Tensor> result;
  for (const auto& p : parameters) result.push_back(p.to(at::kDouble).clone().requires_grad_());
  return result;
}

}  // namespace trireme::test
