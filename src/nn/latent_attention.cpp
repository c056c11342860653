// SPDX-License-Identifier: Apache-2.0
// Multi-head latent attention (DeepSeek-V2 2024): keys and values of all heads are products of one normed latent of a
// token, and all heads share the part of their keys that RoPE turns. Neither keys nor values are kept: the backward
// expands them again.
#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/sum.h>

#include <array>

#include "nn/codes.hpp"
#include "trireme/kernels/gemm.hpp"
#include "trireme/kernels/rms_norm.hpp"

namespace trireme::nn {
namespace {

using model::Role;

/// [N, heads * width] by head.
at::Tensor by_head(const at::Tensor& x, std::int64_t heads) { return x.view({x.size(0), heads, x.size(1) / heads}); }

/// The products before the expansion of keys and values: latents, their norms, queries. Tensor ranks have the latents
/// as a whole and the queries of their heads.
class Compression {
  using enum model::TensorId;

 public:
  Compression(const model::Sizes& sizes, const model::Stage& stage, std::int64_t max_seq_len,
              const model::ContextPart& part, at::Device device)
      : latent_(*sizes.decoder.latent),
        offset_(sizes.decoder.norm == model::NormKind::rms_plus_one ? 1 : 0),
        slots_(stage.kind, sizes.decoder),
        compress_(
            {.weights = slots_[has_query_latent() ? Role::q_a : Role::kv_a], .count = has_query_latent() ? 2U : 1U}),
        queries_({.weights = slots_[query_role()], .fp8 = stage.fp8.of(query_role())}),
        rope_(sizes, stage, slots_, max_seq_len, part, device) {}

  [[nodiscard]] bool has_query_latent() const { return latent_.q_rank > 0; }
  /// The latents before their norms, and the shared key before RoPE: [N, compressed()].
  [[nodiscard]] at::Tensor compressed(const at::Tensor& h, std::span<const at::Tensor> parameters) const {
    return compress_.forward(h, parameters);
  }
  [[nodiscard]] at::Tensor new_statistics(const at::Tensor& compressed) const {
    return at::empty({has_query_latent() ? 2 : 1, compressed.size(0)}, compressed.options().dtype(at::kFloat));
  }
  /// Norms of one latent of `compressed` into `to`. statistics: written unless `again`.
  void norm_queries(const at::Tensor& compressed, std::span<const at::Tensor> parameters, const at::Tensor& statistics,
                    const at::Tensor& to, bool again) const {
    norm(compressed.slice(1, 0, latent_.q_rank), parameters[slots_[Role::q_a_norm]], statistics.select(0, 0), to,
         again);
  }
  void norm_keys(const at::Tensor& compressed, std::span<const at::Tensor> parameters, const at::Tensor& statistics,
                 const at::Tensor& to, bool again) const {
    norm(key_latent(compressed), parameters[slots_[Role::kv_a_norm]], statistics.select(0, statistics.size(0) - 1), to,
         again);
  }
  /// Queries before RoPE. input: their normed latent, or the branch's input.
  [[nodiscard]] at::Tensor queries(const at::Tensor& input, std::span<const at::Tensor> parameters) const {
    return queries_.forward(input, parameters);
  }
  /// RoPE of queries and of the shared key, in place.
  void rotate(const at::Tensor& q, const at::Tensor& shared_key, const Microbatch& m,
              kernels::Rotation direction) const {
    kernels::Rotated tables = rope_.rotated(m);
    kernels::rotate(q, tables.queries, m.seq_len, direction);
    tables.keys.head_dim = tables.keys.begin = 0;  // it is nothing else
    kernels::rotate(shared_key, tables.keys, m.seq_len, direction);
  }
  /// Columns of the latent of keys and values, and of the shared key.
  [[nodiscard]] at::Tensor key_latent(const at::Tensor& compressed) const {
    return compressed.slice(1, latent_.q_rank, latent_.q_rank + latent_.kv_rank);
  }
  [[nodiscard]] at::Tensor shared_key(const at::Tensor& compressed) const {
    return compressed.slice(1, latent_.q_rank + latent_.kv_rank);
  }

  /// The gradient by the branch's input. d_q, and shared_key(d_compressed): the gradients after RoPE, overwritten.
  /// d_latent: of the normed latent of keys. Writes the rest of d_compressed and keeps the gradients of the norms.
  [[nodiscard]] at::Tensor backward(StageFrame& f, const at::Tensor& compressed, const at::Tensor& d_q,
                                    const at::Tensor& d_latent, const at::Tensor& d_compressed) const {
    rotate(d_q, shared_key(d_compressed), f.batch, kernels::Rotation::inverse);
    const at::Tensor statistics = f.kept[latent_statistics];
    const auto norm_backward = [&](const at::Tensor& d, std::int64_t begin, Role role, std::int64_t row) {
      const std::int64_t end = begin + d.size(1);
      const at::Tensor d_weight = at::empty({d.size(1)}, statistics.options());
      kernels::rms_norm_backward(d, compressed.slice(1, begin, end), f.parameters[slots_[role]],
                                 statistics.select(0, row), {}, d_compressed.slice(1, begin, end),
                                 {.tensor = d_weight, .accumulate = false}, offset_);
      return d_weight;
    };
    f.kept.gradient(k_norm_weight) = norm_backward(d_latent, latent_.q_rank, Role::kv_a_norm, statistics.size(0) - 1);
    const at::Tensor d_input = queries_.backward_input(d_q, f.parameters);
    if (has_query_latent()) f.kept.gradient(q_norm_weight) = norm_backward(d_input, 0, Role::q_a_norm, 0);
    at::Tensor d_h = compress_.backward_input(d_compressed, f.parameters);
    return has_query_latent() ? d_h : d_h.add_(d_input);
  }

  /// The gradients of its parameters, from those by queries and by `compressed` that are kept. query_latent: normed.
  void backward_weight(StageFrame& f, const at::Tensor& h, const at::Tensor& query_latent) const {
    queries_.backward_weight(f.kept.gradient(latent_queries), has_query_latent() ? query_latent : h, f.gradients);
    compress_.backward_weight(f.kept.gradient(projected), h, f.gradients);
    const auto put = [&](model::TensorId id, Role role) {
      const std::array d_weight{f.kept.gradient(id)};
      put_gradients(d_weight, f.gradients.subspan(slots_[role], 1));
    };
    put(k_norm_weight, Role::kv_a_norm);
    if (has_query_latent()) put(q_norm_weight, Role::q_a_norm);
  }

 private:
  [[nodiscard]] Role query_role() const { return has_query_latent() ? Role::q_b : Role::q; }
  void norm(const at::Tensor& from, const at::Tensor& weight, const at::Tensor& rstd, const at::Tensor& to,
            bool again) const {
    if (again)
      kernels::rms_norm_again(from, weight, rstd, to, offset_);
    else
      kernels::rms_norm(from, weight, model::latent_norm_eps, to, rstd, offset_);
  }

  model::Latent latent_;
  float offset_;
  Slots slots_;
  JointLinear compress_, queries_;
  QueriesAndKeys rope_;
};

struct KeysAndValues {
  at::Tensor k, v;  ///< [N, heads * head_dim], [N, heads * value]
};

/// The product from the normed latent to keys and values of this rank's heads.
class Expansion {
 public:
  Expansion(const model::Sizes& sizes, const model::Stage& stage)
      : latent_(*sizes.decoder.latent),
        heads_(sizes.heads),
        product_({.weights = Slots(stage.kind, sizes.decoder)[Role::kv_b]}) {
    invariant(sizes.kv_heads == sizes.heads, "latent attention: every head has keys and values");
  }

  [[nodiscard]] KeysAndValues forward(const at::Tensor& latent, const at::Tensor& shared_key,
                                      std::span<const at::Tensor> parameters) const {
    const at::Tensor expanded = by_head(product_.forward(latent, parameters), heads_);
    const std::int64_t tokens = latent.size(0), nope = latent_.nope;
    KeysAndValues out{.k = at::empty({tokens, heads_ * latent_.head_dim()}, latent.options()),
                      .v = at::empty({tokens, heads_ * latent_.value}, latent.options())};
    const at::Tensor k = by_head(out.k, heads_);
    k.slice(2, 0, nope).copy_(expanded.slice(2, 0, nope));
    k.slice(2, nope).copy_(shared_key.unsqueeze(1).expand({tokens, heads_, latent_.rope}));
    by_head(out.v, heads_).copy_(expanded.slice(2, nope));
    return out;
  }

  /// Writes the gradient by the shared key. Returns that by the product's output.
  [[nodiscard]] at::Tensor backward(const KeysAndValues& d, const at::Tensor& d_shared_key) const {
    const std::int64_t nope = latent_.nope;
    const at::Tensor d_k = by_head(d.k, heads_);
    d_shared_key.copy_(d_k.slice(2, nope).sum(1));
    at::Tensor d_expanded = at::empty({d.k.size(0), heads_ * latent_.expanded()}, d.k.options());
    by_head(d_expanded, heads_).slice(2, 0, nope).copy_(d_k.slice(2, 0, nope));
    by_head(d_expanded, heads_).slice(2, nope).copy_(by_head(d.v, heads_));
    return d_expanded;
  }
  [[nodiscard]] at::Tensor backward_input(const at::Tensor& d_expanded, std::span<const at::Tensor> parameters) const {
    return product_.backward_input(d_expanded, parameters);
  }
  void backward_weight(const at::Tensor& d_expanded, const at::Tensor& latent, std::span<const Grad> gradients) const {
    product_.backward_weight(d_expanded, latent, gradients);
  }
  /// The place of its weight.
  [[nodiscard]] std::size_t weight() const { return product_.weights; }

 private:
  model::Latent latent_;
  std::int64_t heads_;
  JointLinear product_;
};

/// o(attention(q, k, v)) of whole sequences.
class LatentAttentionCode final : public StageCode {
 public:
  LatentAttentionCode(const model::Model& model, const model::Stage& stage, std::int64_t max_seq_len, at::Device device)
      : sizes_(model.held),
        window_(stage.window),
        compression_(sizes_, stage, max_seq_len, {}, device),
        expansion_(sizes_, stage),
        out_(output_of(sizes_.decoder, Slots(stage.kind, sizes_.decoder), model.part.rank == 0, stage.fp8)),
        output_{model::result_of(stage), model::upstream_of(stage)} {}

  void forward(StageFrame& f) const override {
    const at::Tensor h = f.take(normed);
    const at::Tensor compressed = f.kept[projected] = compression_.compressed(h, f.parameters);
    f.kept[latent_statistics] = compression_.new_statistics(compressed);
    const at::Tensor norms = f.kept[latents] = normed_latents(f, /*again=*/false);
    const at::Tensor q = f.kept[latent_queries] =
        compression_.queries(compression_.has_query_latent() ? query_latent(norms) : h, f.parameters);
    compression_.rotate(q, compression_.shared_key(compressed), f.batch, kernels::Rotation::forward);
    const auto [k, v] = expansion_.forward(key_latent(norms), compression_.shared_key(compressed), f.parameters);
    const at::Tensor out = attend(f, q, k, v, shape_of(f.batch), window_);
    f[output_.result] = f.wants_output() ? out_.forward(out, f.addend(output_.result), f.parameters) : at::Tensor();
  }

  void backward_input(StageFrame& f) const override {
    const at::Tensor compressed = f.kept[projected];
    if (!f.kept[latents].defined()) f.kept[latents] = normed_latents(f, /*again=*/true);
    const at::Tensor d_y = f.kept.gradient(branch_output) = out_.scaled(f.upstream(output_.upstream));
    const at::Tensor d_q = f.kept.gradient(latent_queries) = at::empty_like(f.kept[latent_queries]);
    const at::Tensor d_compressed = f.kept.gradient(projected) = at::empty_like(compressed);
    const at::Tensor d_expanded = f.kept.gradient(latent_heads) = attention_backward(f, d_y, d_q, d_compressed);
    f[normed] =
        compression_.backward(f, compressed, d_q, expansion_.backward_input(d_expanded, f.parameters), d_compressed);
  }

  void backward_weight(StageFrame& f) const override {
    const at::Tensor h = f.take({normed, schedule::Phase::again}), norms = f.kept[latents];
    out_.backward_weight(f.kept.gradient(branch_output), f.kept[attended], f.gradients);
    expansion_.backward_weight(f.kept.gradient(latent_heads), key_latent(norms), f.gradients);
    compression_.backward_weight(f, h, query_latent(norms));
  }

 private:
  [[nodiscard]] kernels::AttentionShape shape_of(const Microbatch& m) const {
    return attention_of(sizes_, window_, m.batch, m.seq_len);
  }
  [[nodiscard]] std::int64_t q_rank() const { return sizes_.decoder.latent->q_rank; }
  [[nodiscard]] at::Tensor query_latent(const at::Tensor& norms) const { return norms.slice(1, 0, q_rank()); }
  [[nodiscard]] at::Tensor key_latent(const at::Tensor& norms) const { return norms.slice(1, q_rank()); }

  [[nodiscard]] at::Tensor normed_latents(StageFrame& f, bool again) const {
    const at::Tensor compressed = f.kept[projected], statistics = f.kept[latent_statistics];
    at::Tensor norms = at::empty({compressed.size(0), q_rank() + sizes_.decoder.latent->kv_rank}, compressed.options());
    if (compression_.has_query_latent())
      compression_.norm_queries(compressed, f.parameters, statistics, query_latent(norms), again);
    compression_.norm_keys(compressed, f.parameters, statistics, key_latent(norms), again);
    return norms;
  }

  /// Writes the gradients of queries and of the shared key after RoPE. Returns that of the expanded heads.
  [[nodiscard]] at::Tensor attention_backward(StageFrame& f, const at::Tensor& d_y, const at::Tensor& d_q,
                                              const at::Tensor& d_compressed) const {
    const auto [k, v] =
        expansion_.forward(key_latent(f.kept[latents]), compression_.shared_key(f.kept[projected]), f.parameters);
    const KeysAndValues d{.k = at::empty_like(k), .v = at::empty_like(v)};
    kernels::causal_attention_backward(out_.backward_input(d_y, f.parameters), f.kept[latent_queries], k, v,
                                       f.kept[attended], f.kept[logsumexp], shape_of(f.batch), d_q, d.k, d.v,
                                       f.batch.document_begin);
    return expansion_.backward(d, compression_.shared_key(d_compressed));
  }

  model::Sizes sizes_;
  std::int64_t window_;
  Compression compression_;
  Expansion expansion_;
  OutputLinear out_;
  Output output_;
};

/// h to queries, the normed latent of keys and values, and the shared key, side by side: [N, heads * head_dim + kv_rank
/// + rope]. The last two are gathered over context ranks.
class LatentProjectionCode final : public StageCode {
 public:
  LatentProjectionCode(const model::Model& model, const model::Stage& stage, std::int64_t max_seq_len,
                       at::Device device)
      : sizes_(model.held), compression_(sizes_, stage, max_seq_len, model.part.context, device) {}

  void forward(StageFrame& f) const override {
    const at::Tensor h = f.take(normed);
    const at::Tensor compressed = f.kept[raw_qk] = compression_.compressed(h, f.parameters);
    const at::Tensor statistics = f.kept[latent_statistics] = compression_.new_statistics(compressed);
    const at::Tensor out = at::empty({h.size(0), q_width() + model::gathered_width(sizes_)}, h.options());
    if (compression_.has_query_latent()) f.kept[latents] = query_latent(f, /*again=*/false);
    queries(out).copy_(compression_.queries(compression_.has_query_latent() ? f.kept[latents] : h, f.parameters));
    compression_.norm_keys(compressed, f.parameters, statistics, key_latent(out), /*again=*/false);
    shared_key(out).copy_(compression_.shared_key(compressed));
    compression_.rotate(queries(out), shared_key(out), f.batch, kernels::Rotation::forward);
    f[projected] = out;
  }

  void backward_input(StageFrame& f) const override {
    const at::Tensor d_out = f.take(projected), compressed = f.kept[raw_qk];
    if (compression_.has_query_latent() && !f.kept[latents].defined())
      f.kept[latents] = query_latent(f, /*again=*/true);
    const at::Tensor d_q = f.kept.gradient(latent_queries) = at::empty({d_out.size(0), q_width()}, d_out.options());
    d_q.copy_(queries(d_out));
    const at::Tensor d_compressed = f.kept.gradient(projected) = at::empty_like(compressed);
    compression_.shared_key(d_compressed).copy_(shared_key(d_out));
    f[normed] = compression_.backward(f, compressed, d_q, key_latent(d_out), d_compressed);
  }

  void backward_weight(StageFrame& f) const override {
    const at::Tensor h = f.take({normed, schedule::Phase::again});
    compression_.backward_weight(f, h, compression_.has_query_latent() ? f.kept[latents] : at::Tensor());
  }

 private:
  [[nodiscard]] std::int64_t q_width() const { return sizes_.heads * sizes_.head_dim; }
  [[nodiscard]] at::Tensor queries(const at::Tensor& out) const { return out.slice(1, 0, q_width()); }
  [[nodiscard]] at::Tensor key_latent(const at::Tensor& out) const {
    return out.slice(1, q_width(), q_width() + sizes_.decoder.latent->kv_rank);
  }
  [[nodiscard]] at::Tensor shared_key(const at::Tensor& out) const {
    return out.slice(1, q_width() + sizes_.decoder.latent->kv_rank);
  }
  [[nodiscard]] at::Tensor query_latent(StageFrame& f, bool again) const {
    const at::Tensor compressed = f.kept[raw_qk];
    at::Tensor norms = at::empty({compressed.size(0), sizes_.decoder.latent->q_rank}, compressed.options());
    compression_.norm_queries(compressed, f.parameters, f.kept[latent_statistics], norms, again);
    return norms;
  }

  model::Sizes sizes_;
  Compression compression_;
};

/// o(attention(q, k, v)) of this rank's queries, over keys and values that it expands from the latents of whole
/// sequences. The weight gradient of the expansion waits itself between the parts of a backward, in fp32: its operands
/// are of all tokens.
class LatentAttendCode final : public StageCode {
 public:
  LatentAttendCode(const model::Model& model, const model::Stage& stage)
      : sizes_(model.held),
        window_(stage.window),
        part_(model.part.context),
        expansion_(sizes_, stage),
        out_(output_of(sizes_.decoder, Slots(stage.kind, sizes_.decoder), model.part.rank == 0, stage.fp8)),
        output_{model::result_of(stage), model::upstream_of(stage)} {
    invariant(stage.enter == model::Exchange::gather_keys, "latents are gathered where sequences are divided");
  }

  void forward(StageFrame& f) const override {
    const at::Tensor q = queries(f.kept[projected] = f.take(projected));
    const auto [k, v] = expanded(f.take(keys), f.parameters);
    const at::Tensor addend = f.addend(output_.result);
    const at::Tensor out = attend(f, q, k, v, shape_of(f.batch), window_);
    f[output_.result] = f.wants_output() ? out_.forward(out, addend, f.parameters) : at::Tensor();
  }

  void backward_input(StageFrame& f) const override {
    const at::Tensor whole = f.take({keys, schedule::Phase::again});
    const at::Tensor d_y = f.kept.gradient(branch_output) = out_.scaled(f.upstream(output_.upstream));
    const at::Tensor d_out = at::empty_like(f.kept[projected]), d_whole = at::empty_like(whole);
    const at::Tensor d_expanded = attention_backward(f, d_y, whole, queries(d_out), shared_key(d_whole));
    const at::Tensor d_weight = f.kept.gradient(latent_heads) =
        at::empty(f.parameters[expansion_.weight()].sizes(), whole.options().dtype(at::kFloat));
    kernels::linear_backward_weight(d_expanded, latent(whole), {.tensor = d_weight, .accumulate = false});
    latent(d_whole).copy_(expansion_.backward_input(d_expanded, f.parameters));
    f[projected] = d_out;  // its other columns arrive with the sum over ranks of d_whole
    f[keys] = d_whole;
  }

  void backward_weight(StageFrame& f) const override {
    out_.backward_weight(f.kept.gradient(branch_output), f.kept[attended], f.gradients);
    const std::array d_weight{f.kept.gradient(latent_heads)};
    put_gradients(d_weight, f.gradients.subspan(expansion_.weight(), 1));
  }

 private:
  [[nodiscard]] kernels::AttentionShape shape_of(const Microbatch& m) const {
    const std::int64_t seq_len = m.seq_len * part_.ranks;
    kernels::AttentionShape shape = attention_of(sizes_, window_, m.batch, seq_len);
    shape.run = part_.run(seq_len);
    shape.run_begin = {part_.first_run(seq_len), part_.second_run(seq_len)};
    return shape;
  }
  [[nodiscard]] at::Tensor queries(const at::Tensor& columns) const {
    return columns.slice(1, 0, sizes_.heads * sizes_.head_dim);
  }
  [[nodiscard]] at::Tensor latent(const at::Tensor& whole) const {
    return whole.slice(1, 0, sizes_.decoder.latent->kv_rank);
  }
  [[nodiscard]] at::Tensor shared_key(const at::Tensor& whole) const {
    return whole.slice(1, sizes_.decoder.latent->kv_rank);
  }
  [[nodiscard]] KeysAndValues expanded(const at::Tensor& whole, std::span<const at::Tensor> parameters) const {
    return expansion_.forward(latent(whole), shared_key(whole), parameters);
  }

  /// Writes the gradients of queries and of the shared key. Returns that of the expanded heads.
  [[nodiscard]] at::Tensor attention_backward(StageFrame& f, const at::Tensor& d_y, const at::Tensor& whole,
                                              const at::Tensor& d_q, const at::Tensor& d_shared_key) const {
    const auto [k, v] = expanded(whole, f.parameters);
    const KeysAndValues d{.k = at::empty_like(k), .v = at::empty_like(v)};
    kernels::causal_attention_backward(out_.backward_input(d_y, f.parameters), queries(f.kept[projected]), k, v,
                                       f.kept[attended], f.kept[logsumexp], shape_of(f.batch), d_q, d.k, d.v,
                                       f.batch.document_begin);
    return expansion_.backward(d, d_shared_key);
  }

  model::Sizes sizes_;
  std::int64_t window_;
  model::ContextPart part_;
  Expansion expansion_;
  OutputLinear out_;
  Output output_;
};

}  // namespace

std::unique_ptr<StageCode> make_latent_attention_code(const model::Model& model, const model::Stage& stage,
                                                      std::int64_t max_seq_len, at::Device device) {
  switch (stage.kind) {
    case model::StageKind::attention_branch:
      return std::make_unique<LatentAttentionCode>(model, stage, max_seq_len, device);
    case model::StageKind::projection: return std::make_unique<LatentProjectionCode>(model, stage, max_seq_len, device);
    case model::StageKind::attend: return std::make_unique<LatentAttendCode>(model, stage);
    default: throw BugError("make_latent_attention_code: the stage is not of latent attention");
  }
}

}  // namespace trireme::nn
