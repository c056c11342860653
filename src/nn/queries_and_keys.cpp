// SPDX-License-Identifier: Apache-2.0
#include "nn/queries_and_keys.hpp"

#include <ATen/ops/empty.h>
#include <ATen/ops/index_select.h>

#include <cmath>
#include <mutex>

#include "nn/linear.hpp"
#include "trireme/base/error.hpp"
#include "trireme/kernels/rms_norm.hpp"

namespace trireme::nn {
namespace {

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

/// The rows of a table of `positions` positions that are of this rank's tokens, in their order.
at::Tensor rows_of_part(const at::Tensor& table, std::int64_t positions, const model::ContextPart& part) {
  if (part.ranks == 1) return table;
  at::Tensor rows = at::empty({positions / part.ranks}, at::kLong);
  for (std::int64_t i = 0; i < rows.size(0); ++i)
    rows.mutable_data_ptr<std::int64_t>()[i] = part.position(i, positions);
  return at::index_select(table, 0, rows);
}

kernels::RopeTable rope_table(const RopeOfStage& of, std::int64_t positions, std::int64_t length) {
  kernels::RopeTable table = kernels::rope_table(positions, of.width, of.theta, of.scaling, length);
  table.cos = rows_of_part(table.cos, positions, of.part).to(of.device);
  table.sin = rows_of_part(table.sin, positions, of.part).to(of.device);
  table.head_dim = of.head_dim;
  table.begin = of.begin;
  table.adjacent_pairs = of.adjacent_pairs;
  return table;
}

/// The same table for queries, whose cosines and sines grow with the position.
kernels::RopeTable of_queries(const kernels::RopeTable& table, const RopeOfStage& of, std::int64_t positions) {
  if (!of.scaling || of.scaling->llama_4_scaling_beta == 0) return table;
  const auto original = static_cast<double>(of.scaling->original_max_position_embeddings);
  at::Tensor times = at::empty({positions, 1}, at::kFloat);
  for (std::int64_t t = 0; t < positions; ++t)
    times.mutable_data_ptr<float>()[t] = static_cast<float>(
        1 + of.scaling->llama_4_scaling_beta * std::log1p(std::floor(static_cast<double>(t) / original)));
  times = rows_of_part(times, positions, of.part).to(of.device);
  kernels::RopeTable scaled = table;
  scaled.cos = table.cos * times;
  scaled.sin = table.sin * times;
  return scaled;
}

RotaryTables tables_for(const RopeOfStage& of, std::int64_t positions, std::int64_t length) {
  const kernels::RopeTable keys = rope_table(of, positions, length);
  return {.queries = of_queries(keys, of, positions), .keys = keys};
}

/// Layers that turn alike have one table: at a million positions it takes half a gigabyte.
std::shared_ptr<const RotaryTables> shared_tables(const RopeOfStage& of, std::int64_t positions, std::int64_t length) {
  struct Made {
    RopeOfStage of;
    std::int64_t positions, length;
    std::weak_ptr<const RotaryTables> tables;
  };
  static std::mutex mutex;
  static std::vector<Made> all;
  const std::scoped_lock lock(mutex);
  std::erase_if(all, [](const Made& made) { return made.tables.expired(); });
  for (const Made& made : all)
    if (made.of == of && made.positions == positions && made.length == length)
      if (std::shared_ptr<const RotaryTables> tables = made.tables.lock()) return tables;
  auto tables = std::make_shared<const RotaryTables>(tables_for(of, positions, length));
  all.push_back({of, positions, length, tables});
  return tables;
}

RopeOfStage rope_of(const model::Sizes& s, const model::Stage& stage, const model::ContextPart& part,
                    at::Device device) {
  const bool local = s.decoder.local_rope && stage.window > 0;
  return {.width = model::rotary_width(s.decoder, s.head_dim),
          .head_dim = s.head_dim,
          .begin = s.decoder.latent ? s.decoder.latent->nope : 0,
          .adjacent_pairs = s.decoder.adjacent_pairs,
          .theta = local ? s.rope_local_theta : s.rope_theta,
          .scaling = local ? std::nullopt : s.rope_scaling,
          .part = part,
          .device = device};
}

/// The rows of a table from a position on.
kernels::RopeTable from(const kernels::RopeTable& table, std::int64_t past) {
  kernels::RopeTable rows = table;
  if (past > 0) rows.cos = rows.cos.slice(0, past), rows.sin = rows.sin.slice(0, past);
  return rows;
}

}  // namespace

ProjectedParts::ProjectedParts(const at::Tensor& qkv, const model::Sizes& s) {
  const std::int64_t q_end = s.heads * s.head_dim;
  const std::int64_t k_end = q_end + s.kv_heads * s.head_dim;
  q = qkv.slice(1, 0, q_end);
  k = qkv.slice(1, q_end, k_end);
  v = qkv.slice(1, k_end);
  qk = qkv.slice(1, 0, k_end);
  kv = qkv.slice(1, q_end);
}

QueriesAndKeys::QueriesAndKeys(const model::Sizes& sizes, const model::Stage& stage, const Slots& slots,
                               std::int64_t max_seq_len, const model::ContextPart& part, at::Device device)
    : eps_(sizes.norm_eps),
      offset_(sizes.decoder.norm == model::NormKind::rms_plus_one ? 1 : 0),
      pieces_(normed_pieces(sizes, slots)),
      by_head_(sizes.decoder.qk_norm == model::QkNorm::head),
      queries_(sizes.heads * sizes.head_dim),
      max_seq_len_(max_seq_len),
      rope_(rope_of(sizes, stage, part, device)) {
  if (sizes.decoder.learned_positions || !stage.rotates) return;
  tables_ = shared_tables(rope_, max_seq_len, 0);
  if (!kernels::turns_by_length(rope_.scaling)) return;
  short_length_ = rope_.scaling->original_max_position_embeddings;
  if (max_seq_len > short_length_) long_tables_ = shared_tables(rope_, max_seq_len, max_seq_len);
}

RotaryTables QueriesAndKeys::tables_of(const Microbatch& m) const {
  const int ranks = rope_.part.ranks;
  invariant(ranks == 1 || (m.seq_len == tables_->keys.cos.size(0) && m.past == 0),
            "sequences that are divided have one length");
  const std::int64_t length = m.past + m.seq_len * ranks;
  const bool beyond = long_tables_ && length > short_length_;
  RotaryTables tables = beyond ? *long_tables_ : *tables_;
  // The table is for the longest sequences, as all are in training; others are those of a growing text.
  if (beyond && rope_.scaling->type == config::RopeType::dynamic && length != max_seq_len_)
    tables = tables_for(rope_, length, length);
  return {.queries = from(tables.queries, m.past), .keys = from(tables.keys, m.past)};
}

void QueriesAndKeys::rotate(const at::Tensor& qk, const Microbatch& microbatch, kernels::Rotation direction) const {
  if (!tables_) return;
  const RotaryTables tables = tables_of(microbatch);
  if (!rope_.scaling || rope_.scaling->llama_4_scaling_beta == 0)
    return kernels::rotate(qk, tables.keys, microbatch.seq_len, direction);
  kernels::rotate(qk.slice(1, 0, queries_), tables.queries, microbatch.seq_len, direction);
  kernels::rotate(qk.slice(1, queries_), tables.keys, microbatch.seq_len, direction);
}

kernels::HeadNorms QueriesAndKeys::head_norms(std::span<const at::Tensor> parameters) const {
  const auto weight = [&](const NormedPiece& piece) { return parameters[piece.weight]; };
  return {.q_weight = weight(pieces_.front()),
          .k_weight = weight(pieces_.back()),
          .q_heads = queries_ / rope_.head_dim,
          .head_dim = rope_.head_dim,
          .offset = offset_};
}

at::Tensor QueriesAndKeys::new_rstd(const at::Tensor& like, std::int64_t tokens) const {
  if (!norms()) return {};
  return at::empty({static_cast<std::int64_t>(pieces_.size()), tokens}, like.options().dtype(at::kFloat));
}

at::Tensor QueriesAndKeys::prepare(const at::Tensor& raw, std::span<const at::Tensor> parameters,
                                   const Microbatch& microbatch, const at::Tensor& rstd, bool again) const {
  at::Tensor qk = raw;
  if (norms()) {
    qk = at::empty({raw.size(0), raw.size(1)}, raw.options());
    if (by_head_) kernels::rms_norm_heads(raw, head_norms(parameters), eps_, qk, rstd, again);
    for (std::size_t i = 0; !by_head_ && i < pieces_.size(); ++i) {
      const NormedPiece& piece = pieces_[i];
      const at::Tensor from = raw.slice(1, piece.begin, piece.end), to = qk.slice(1, piece.begin, piece.end);
      const at::Tensor statistics = rstd.select(0, static_cast<std::int64_t>(i));
      if (again)
        kernels::rms_norm_again(from, parameters[piece.weight], statistics, to, norm_offset());
      else
        kernels::rms_norm(from, parameters[piece.weight], eps_, to, statistics, norm_offset());
    }
  }
  rotate(qk, microbatch, kernels::Rotation::forward);
  return qk;
}

kernels::Rotated QueriesAndKeys::rotated(const Microbatch& microbatch) const {
  return tables_ ? tables_of(microbatch) : kernels::Rotated{};
}

std::vector<at::Tensor> QueriesAndKeys::backward(const at::Tensor& d_qk, const at::Tensor& qk,
                                                 std::span<const at::Tensor> parameters, const Microbatch& microbatch,
                                                 const at::Tensor& rstd) const {
  rotate(d_qk, microbatch, kernels::Rotation::inverse);
  return norms_backward(d_qk, qk, parameters, rstd);
}

std::vector<at::Tensor> QueriesAndKeys::norms_backward(const at::Tensor& d_qk, const at::Tensor& qk,
                                                       std::span<const at::Tensor> parameters,
                                                       const at::Tensor& rstd) const {
  std::vector<at::Tensor> d_weights;
  if (by_head_) {
    d_weights = {at::empty({rope_.head_dim}, rstd.options()), at::empty({rope_.head_dim}, rstd.options())};
    kernels::rms_norm_heads_backward(d_qk, qk, head_norms(parameters), rstd, d_qk, {.tensor = d_weights[0]},
                                     {.tensor = d_weights[1]});
    return d_weights;
  }
  for (std::size_t i = 0; i < pieces_.size(); ++i) {
    const NormedPiece& piece = pieces_[i];
    const at::Tensor d = d_qk.slice(1, piece.begin, piece.end);
    if (piece.first) d_weights.push_back(at::empty({piece.end - piece.begin}, rstd.options()));
    kernels::rms_norm_backward(d, qk.slice(1, piece.begin, piece.end), parameters[piece.weight],
                               rstd.select(0, static_cast<std::int64_t>(i)), {}, d,
                               {.tensor = d_weights.back(), .accumulate = !piece.first}, norm_offset());
  }
  return d_weights;
}

void QueriesAndKeys::put_weights(std::span<const at::Tensor> d_weights, std::span<const Grad> grads) const {
  auto next = d_weights.begin();
  for (const NormedPiece& piece : pieces_) {
    if (!piece.first) continue;
    const Grad& grad = grads[piece.weight];
    const at::Tensor& d_weight = *next++;
    if (grad.accumulate)
      grad.tensor.add_(d_weight);
    else
      grad.tensor.copy_(d_weight);
  }
}

}  // namespace trireme::nn
