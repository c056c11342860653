// SPDX-License-Identifier: Apache-2.0
#include "trireme/kernels/attention.hpp"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include <array>
#include <optional>

#include "nn/codes.hpp"
#include "trireme/base/error.hpp"
#include "trireme/kernels/cached_attention.hpp"
#include "trireme/kernels/rms_norm.hpp"
#include "trireme/kernels/split_rms_norm.hpp"
#include "trireme/model/kv_cache.hpp"

namespace trireme::nn {
namespace {

using model::Role, model::TensorId;

}  // namespace

kernels::AttentionShape attention_of(const model::Sizes& sizes, std::int64_t window, std::int64_t batch,
                                     std::int64_t seq_len) {
  return {.batch = batch,
          .seq_len = seq_len,
          .heads = sizes.heads,
          .kv_heads = sizes.kv_heads,
          .head_dim = sizes.head_dim,
          .window = window < seq_len ? window : 0,
          .scale = sizes.decoder.score_scale,
          .softcap = sizes.decoder.score_softcap,
          .value_dim = sizes.value_dim()};
}

namespace {

/// Mode::generate: puts the keys and values of the microbatch behind those in the cache, which is allocated first.
void extend_cache(const StageFrame& f, const at::Tensor& k, const at::Tensor& v, const kernels::AttentionShape& shape,
                  std::int64_t window) {
  const Microbatch& m = f.batch;
  invariant(m.past + m.seq_len <= m.longest && (m.past == 0 || m.seq_len == 1),
            "a key/value cache takes a text, then one token at a time");
  const auto capacity = [&](std::int64_t width) {
    return std::array<std::int64_t, 4>{m.batch, shape.kv_heads, model::cached_tokens(window, m.longest), width};
  };
  at::Tensor &keys = f.kept[TensorId::cached_keys], &values = f.kept[TensorId::cached_values];
  if (m.past == 0 && (!keys.defined() || keys.sizes() != at::IntArrayRef(capacity(shape.head_dim)))) {
    keys = at::empty(capacity(shape.head_dim), k.options());
    values = at::empty(capacity(shape.value_width()), v.options());
  }
  invariant(keys.defined(), "a token finds the keys and values of those before it");
  kernels::store_keys_and_values(k, v, shape, m.past, {.keys = keys, .values = values});
}

}  // namespace

at::Tensor attend(const StageFrame& f, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                  const kernels::AttentionShape& shape, std::int64_t window) {
  if (f.mode == Mode::generate) extend_cache(f, k, v, shape, window);
  if (f.batch.past > 0) {
    at::Tensor out = at::empty({q.size(0), shape.heads * shape.value_width()}, q.options());
    kernels::cached_attention(q, {.keys = f.kept[TensorId::cached_keys], .values = f.kept[TensorId::cached_values]},
                              shape, f.batch.past, out, f.batch.document_begin);
    return out;
  }
  auto [attended, logsumexp] = kernels::attend(q, k, v, shape, f.batch.document_begin);
  f.kept[TensorId::logsumexp] = std::move(logsumexp);
  return f.kept[TensorId::attended] = std::move(attended);
}

namespace {

model::Sizes without_norm_of_heads(model::Sizes sizes) {
  sizes.decoder.qk_norm = model::QkNorm::none;
  return sizes;
}

/// The columns of queries and those of keys.
std::array<at::Tensor, 2> queries_and_keys_of(const at::Tensor& qk, const model::Sizes& sizes) {
  const std::int64_t q_width = sizes.heads * sizes.head_dim;
  return {qk.slice(1, 0, q_width), qk.slice(1, q_width, q_width + sizes.kv_heads * sizes.head_dim)};
}

/// h to q|k|v as attention reads them, or where a norm over all heads follows the sums that it reads.
class ProjectionCode final : public StageCode {
 public:
  ProjectionCode(const model::Sizes& sizes, const model::Stage& stage, std::int64_t seq_len,
                 const model::ContextPart& part, at::Device device)
      : sizes_(sizes),
        slots_(model::StageKind::projection, sizes.decoder),
        qkv_(projection_of(sizes.decoder, slots_, stage.fp8)) {
    if (sizes.decoder.qk_norm != model::QkNorm::width) heads_.emplace(sizes, stage, slots_, seq_len, part, device);
  }

  void forward(StageFrame& f) const override {
    const at::Tensor h = f.take(normed);
    const at::Tensor qkv = f[projected] = qkv_.forward(h, f.parameters);
    if (!heads_) {
      f[statistics] = sums_of_squares(qkv);
      return;
    }
    const ProjectedParts parts(qkv, sizes_);
    const at::Tensor rstd = heads_->new_rstd(h, h.size(0));
    if (!heads_->norms()) {
      (void)heads_->prepare(parts.qk, f.parameters, f.batch, rstd, false);
      return;
    }
    const at::Tensor raw = at::empty({parts.qk.size(0), parts.qk.size(1)}, qkv.options());
    raw.copy_(parts.qk);
    parts.qk.copy_(heads_->prepare(raw, f.parameters, f.batch, rstd, false));
    f.kept[raw_qk] = raw;
    f.kept[qk_statistics] = rstd;
  }

  void backward_input(StageFrame& f) const override {
    const at::Tensor d_qkv = f.take(projected);
    const bool norms = heads_ && heads_->norms();
    if (heads_)
      f.kept.put_gradients({q_norm_weight, k_norm_weight},
                           heads_->backward(ProjectedParts(d_qkv, sizes_).qk, norms ? f.kept[raw_qk] : at::Tensor(),
                                            f.parameters, f.batch, norms ? f.kept[qk_statistics] : at::Tensor()));
    f.kept.gradient(projected) = d_qkv;
    f[normed] = qkv_.backward_input(d_qkv, f.parameters);
  }

  void backward_weight(StageFrame& f) const override {
    qkv_.backward_weight(f.kept.gradient(projected), f.take({normed, schedule::Phase::again}), f.gradients);
    if (heads_) heads_->put_weights(f.kept.gradients({q_norm_weight, k_norm_weight}), f.gradients);
  }

 private:
  [[nodiscard]] at::Tensor sums_of_squares(const at::Tensor& qkv) const {
    at::Tensor sums = at::empty({2, qkv.size(0)}, qkv.options().dtype(at::kFloat));
    const auto parts = queries_and_keys_of(qkv, sizes_);
    for (const std::size_t i : {0U, 1U})
      kernels::row_squares(parts.at(i), sums.select(0, static_cast<std::int64_t>(i)));
    return sums;
  }

  model::Sizes sizes_;
  Slots slots_;
  JointLinear qkv_;
  std::optional<QueriesAndKeys> heads_;  ///< absent: QkNormCode behind it does their work
};

/// RMSNorm of queries and of keys over all heads of a token, of which this rank has a part, and RoPE, in the place of
/// q|k. The ranks of the tensor axis sum their statistics, fp32 [2, N], first of queries, then of keys.
class QkNormCode final : public StageCode {
 public:
  QkNormCode(const model::Model& model, const model::Stage& stage, std::int64_t seq_len, at::Device device)
      : sizes_(model.held),
        offset_(sizes_.decoder.norm == model::NormKind::rms_plus_one ? 1 : 0),
        widths_{static_cast<double>(model.sizes.heads * model.sizes.head_dim),
                static_cast<double>(model::kv_copies(model.sizes, model.part.ranks) * model.sizes.kv_heads *
                                    model.sizes.head_dim)},
        sums_over_ranks_(stage.enter == model::Exchange::all_reduce_statistics),
        turn_(without_norm_of_heads(sizes_), stage, Slots(stage.kind, sizes_.decoder), seq_len, model.part.context,
              device) {}

  void forward(StageFrame& f) const override {
    const at::Tensor qk = ProjectedParts(f[projected], sizes_).qk, sums = f.take(statistics);
    at::Tensor raw = qk;
    if (saves(f.mode)) raw = f.kept[raw_qk] = at::empty({qk.size(0), qk.size(1)}, qk.options()).copy_(qk);
    const at::Tensor rstd = f.kept[qk_statistics] = at::empty_like(sums);
    const auto from = queries_and_keys_of(raw, sizes_), to = queries_and_keys_of(qk, sizes_);
    for (const std::size_t i : {0U, 1U}) {
      const at::Tensor of_part = rstd.select(0, static_cast<std::int64_t>(i));
      of_part.copy_(sums.select(0, static_cast<std::int64_t>(i))).div_(widths_.at(i)).add_(sizes_.norm_eps).rsqrt_();
      kernels::rms_norm_again(from.at(i), f.parameters[i], of_part, to.at(i), offset_);
    }
    (void)turn_.prepare(qk, f.parameters, f.batch, {}, false);
  }

  void backward_input(StageFrame& f) const override {
    const at::Tensor d_qk = ProjectedParts(f[projected], sizes_).qk, rstd = f.kept[qk_statistics];
    (void)turn_.backward(d_qk, {}, f.parameters, f.batch, {});
    const at::Tensor sums = at::empty_like(rstd);
    const auto d = queries_and_keys_of(d_qk, sizes_), raw = queries_and_keys_of(f.kept[raw_qk], sizes_);
    std::vector<at::Tensor> d_weights;
    for (const std::size_t i : {0U, 1U}) {
      d_weights.push_back(at::empty({raw.at(i).size(1)}, rstd.options()));
      kernels::split_rms_norm_backward(
          d.at(i), raw.at(i), f.parameters[i], rstd.select(0, static_cast<std::int64_t>(i)), widths_.at(i), d.at(i),
          sums.select(0, static_cast<std::int64_t>(i)), {.tensor = d_weights.back(), .accumulate = false}, offset_);
    }
    f.kept.put_gradients({q_norm_weight, k_norm_weight}, d_weights);
    f[statistics] = sums;
    if (!sums_over_ranks_) finish_backward(f);
  }

  void finish_backward(StageFrame& f) const override {
    const at::Tensor sums = f.take(statistics);
    const auto d = queries_and_keys_of(f[projected], sizes_), raw = queries_and_keys_of(f.kept[raw_qk], sizes_);
    for (const std::size_t i : {0U, 1U})
      kernels::subtract_scaled_rows(raw.at(i), sums.select(0, static_cast<std::int64_t>(i)), d.at(i));
  }

  void backward_weight(StageFrame& f) const override {
    put_gradients(f.kept.gradients({q_norm_weight, k_norm_weight}), f.gradients);
  }

 private:
  model::Sizes sizes_;
  float offset_;
  std::array<double, 2> widths_;  ///< that sums over all ranks count
  bool sums_over_ranks_;
  QueriesAndKeys turn_;  ///< RoPE alone
};

/// o(attention(q, k, v)) of this rank's queries over the keys and values of whole sequences: those that were gathered,
/// or its own.
class AttendCode final : public StageCode {
 public:
  AttendCode(const model::Model& model, const model::Stage& stage)
      : sizes_(model.held),
        window_(stage.window),
        part_(model.part.context),
        gathers_(stage.enter == model::Exchange::gather_keys),
        slots_(model::StageKind::attend, sizes_.decoder),
        out_(output_of(sizes_.decoder, slots_, model.part.rank == 0, stage.fp8)),
        output_{model::result_of(stage), model::upstream_of(stage)} {}

  void forward(StageFrame& f) const override {
    const at::Tensor qkv = f.kept[projected] = f.take(projected);
    const ProjectedParts parts(qkv, sizes_);
    const auto [k, v] = split(gathers_ ? f.take(keys) : parts.kv);
    const at::Tensor addend = f.addend(output_.result);
    const at::Tensor out = attend(f, parts.q, k, v, shape_of(f.batch), window_);
    f[output_.result] = f.wants_output() ? out_.forward(out, addend, f.parameters) : at::Tensor();
  }

  void backward_input(StageFrame& f) const override {
    const at::Tensor qkv = f.kept[projected];
    const at::Tensor whole = gathers_ ? f.take({keys, schedule::Phase::again}) : at::Tensor();
    const at::Tensor d_y = f.kept.gradient(branch_output) = out_.scaled(f.upstream(output_.upstream));
    const at::Tensor d_attended = out_.backward_input(d_y, f.parameters);
    const at::Tensor d_qkv = at::empty_like(qkv), d_whole = gathers_ ? at::empty_like(whole) : at::Tensor();
    const ProjectedParts parts(qkv, sizes_), d_parts(d_qkv, sizes_);
    const auto [k, v] = split(gathers_ ? whole : parts.kv);
    const auto [d_k, d_v] = split(gathers_ ? d_whole : d_parts.kv);
    kernels::causal_attention_backward(d_attended, parts.q, k, v, f.kept[attended], f.kept[logsumexp],
                                       shape_of(f.batch), d_parts.q, d_k, d_v, f.batch.document_begin);
    f[projected] = d_qkv;
    if (gathers_) f[keys] = d_whole;
  }

  void backward_weight(StageFrame& f) const override {
    out_.backward_weight(f.kept.gradient(branch_output), f.kept[attended], f.gradients);
  }

 private:
  [[nodiscard]] kernels::AttentionShape shape_of(const Microbatch& m) const {
    const std::int64_t seq_len = m.seq_len * part_.ranks;
    kernels::AttentionShape shape = attention_of(sizes_, window_, m.batch, seq_len);
    shape.run = part_.ranks > 1 ? part_.run(seq_len) : 0;
    shape.run_begin = {part_.first_run(seq_len), part_.second_run(seq_len)};
    return shape;
  }
  [[nodiscard]] std::array<at::Tensor, 2> split(const at::Tensor& kv) const {
    const std::int64_t width = sizes_.kv_heads * sizes_.head_dim;
    return {kv.slice(1, 0, width), kv.slice(1, width)};
  }

  model::Sizes sizes_;
  std::int64_t window_;
  model::ContextPart part_;
  bool gathers_;
  Slots slots_;
  OutputLinear out_;
  Output output_;
};

/// Attention of this rank's part of the heads over whole sequences.
class CoreAttentionCode final : public StageCode {
 public:
  CoreAttentionCode(model::Sizes sizes, const model::Stage& stage, const model::ContextPart& part)
      : sizes_(std::move(sizes)), window_(stage.window), ranks_(part.ranks), upstream_(model::upstream_of(stage)) {
    sizes_.heads /= ranks_;
    sizes_.kv_heads /= ranks_;
  }

  void forward(StageFrame& f) const override {
    const at::Tensor qkv = f.kept[projected] = f.take(projected);
    const ProjectedParts parts(qkv, sizes_);
    f[attended] = attend(f, parts.q, parts.k, parts.v, shape_of(f.batch), window_);
  }

  void backward(StageFrame& f) const override {
    const at::Tensor d_qkv = at::empty_like(f.kept[projected]);
    const ProjectedParts parts(f.kept[projected], sizes_), d(d_qkv, sizes_);
    kernels::causal_attention_backward(f.upstream(upstream_), parts.q, parts.k, parts.v, f.kept[attended],
                                       f.kept[logsumexp], shape_of(f.batch), d.q, d.k, d.v, f.batch.document_begin);
    f[projected] = d_qkv;
  }

 private:
  [[nodiscard]] kernels::AttentionShape shape_of(const Microbatch& m) const {
    return attention_of(sizes_, window_, m.batch, m.seq_len * ranks_);
  }

  model::Sizes sizes_;  ///< heads and kv_heads: this rank's part
  std::int64_t window_;
  int ranks_;
  TensorId upstream_;
};

/// o(attended).
class OutputProjectionCode final : public StageCode {
 public:
  OutputProjectionCode(const model::Model& model, const model::Stage& stage)
      : slots_(model::StageKind::output, model.held.decoder),
        out_(output_of(model.held.decoder, slots_, model.part.rank == 0, stage.fp8)),
        output_{model::result_of(stage), model::upstream_of(stage)} {}

  void forward(StageFrame& f) const override {
    const at::Tensor in = f.kept[attended] = f.take(attended);
    const at::Tensor addend = f.addend(output_.result);
    f[output_.result] = f.wants_output() ? out_.forward(in, addend, f.parameters) : at::Tensor();
  }
  void backward_input(StageFrame& f) const override {
    f.kept.gradient(branch_output) = out_.scaled(f.upstream(output_.upstream));
    f[attended] = out_.backward_input(f.kept.gradient(branch_output), f.parameters);
  }
  void backward_weight(StageFrame& f) const override {
    out_.backward_weight(f.kept.gradient(branch_output), f.kept[attended], f.gradients);
  }

 private:
  Slots slots_;
  OutputLinear out_;
  Output output_;
};

}  // namespace

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

AttentionCode::AttentionCode(const model::Sizes& sizes, const model::Stage& stage, std::int64_t max_seq_len,
                             bool adds_bias, Output output, at::Device device)
    : sizes_(sizes),
      window_(stage.window),
      slots_(model::StageKind::attention_branch, sizes.decoder),
      qkv_(projection_of(sizes.decoder, slots_, stage.fp8)),
      out_(output_of(sizes.decoder, slots_, adds_bias, stage.fp8)),
      heads_(sizes, stage, slots_, max_seq_len, {}, device),
      output_(output) {
  invariant(sizes.kv_heads > 0 && sizes.heads % sizes.kv_heads == 0, "attention: heads is not a multiple of kv_heads");
}

void AttentionCode::forward(StageFrame& f) const {
  const at::Tensor h = f.take(normed);
  const at::Tensor qkv = f.kept[projected] = qkv_.forward(h, f.parameters);
  const at::Tensor rstd = heads_.new_rstd(h, h.size(0));
  const ProjectedParts parts(qkv, sizes_);
  const at::Tensor qk = heads_.prepare(parts.qk, f.parameters, f.batch, rstd, false);
  if (heads_.norms()) f.kept[qk_statistics] = rstd;
  const auto [q, k] = queries_and_keys_of(qk, sizes_);
  const at::Tensor out =
      attend(f, q, k, parts.v, attention_of(sizes_, window_, f.batch.batch, f.batch.seq_len), window_);
  f[output_.result] = f.wants_output() ? out_.forward(out, f.addend(output_.result), f.parameters) : at::Tensor();
}

void AttentionCode::backward_input(StageFrame& f) const {
  const at::Tensor qkv = f.kept[projected], rstd = heads_.norms() ? f.kept[qk_statistics] : at::Tensor();
  const ProjectedParts parts(qkv, sizes_);
  at::Tensor qk = heads_.norms() ? heads_.prepare(parts.qk, f.parameters, f.batch, rstd, true) : parts.qk;
  const at::Tensor d_y = f.kept.gradient(branch_output) = out_.scaled(f.upstream(output_.upstream));
  const at::Tensor d_attended = out_.backward_input(d_y, f.parameters);
  const at::Tensor d_qkv = f.kept.gradient(projected) = at::empty_like(qkv);
  const ProjectedParts d_parts(d_qkv, sizes_);
  {
    const auto [q, k] = queries_and_keys_of(qk, sizes_);
    kernels::causal_attention_backward(d_attended, q, k, parts.v, f.kept[attended], f.kept[logsumexp],
                                       attention_of(sizes_, window_, f.batch.batch, f.batch.seq_len), d_parts.q,
                                       d_parts.k, d_parts.v, f.batch.document_begin, heads_.rotated(f.batch));
  }
  qk.reset();
  f.kept.put_gradients({q_norm_weight, k_norm_weight}, heads_.norms_backward(d_parts.qk, parts.qk, f.parameters, rstd));
  f[normed] = qkv_.backward_input(d_qkv, f.parameters);
}

void AttentionCode::backward_weight(StageFrame& f) const {
  const at::Tensor h = f.take({normed, schedule::Phase::again});
  out_.backward_weight(f.kept.gradient(branch_output), f.kept[attended], f.gradients);
  qkv_.backward_weight(f.kept.gradient(projected), h, f.gradients);
  heads_.put_weights(f.kept.gradients({q_norm_weight, k_norm_weight}), f.gradients);
}

std::unique_ptr<StageCode> make_attention_code(const model::Model& model, const model::Stage& stage,
                                               std::int64_t seq_len, at::Device device) {
  using model::StageKind;
  if (model.sizes.decoder.latent) return make_latent_attention_code(model, stage, seq_len, device);
  switch (stage.kind) {
    case StageKind::projection:
      return std::make_unique<ProjectionCode>(model.held, stage, seq_len, model.part.context, device);
    case StageKind::qk_norm: return std::make_unique<QkNormCode>(model, stage, seq_len, device);
    case StageKind::attend: return std::make_unique<AttendCode>(model, stage);
    case StageKind::core_attention: return std::make_unique<CoreAttentionCode>(model.held, stage, model.part.context);
    case StageKind::output: return std::make_unique<OutputProjectionCode>(model, stage);
    case StageKind::attention_branch:
      return std::make_unique<AttentionCode>(model.held, stage, seq_len, model.part.rank == 0,
                                             Output{model::result_of(stage), model::upstream_of(stage)}, device);
    default: throw BugError("make_attention_code: the stage is not of attention");
  }
}

}  // namespace trireme::nn
