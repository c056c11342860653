// SPDX-License-Identifier: Apache-2.0
#include "trireme/nn/queries_and_keys.hpp"

#include <ATen/ops/empty.h>
#include <ATen/ops/index_select.h>

#include "trireme/base/error.hpp"
#include "trireme/kernels/rms_norm.hpp"
#include "trireme/nn/branch.hpp"

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

kernels::RopeTable rope_of(const model::Sizes& s, const model::Stage& stage, std::int64_t positions, bool long_context,
                           const model::ContextPart& part, at::Device device) {
  const bool local = s.decoder.local_rope && stage.window > 0;
  const kernels::RopeTable table = kernels::rope_table(positions, model::rotary_width(s.decoder, s.head_dim),
                                                       local ? s.rope_local_theta : s.rope_theta,
                                                       local ? std::nullopt : s.rope_scaling, long_context);
  return {.cos = rows_of_part(table.cos, positions, part).to(device),
          .sin = rows_of_part(table.sin, positions, part).to(device),
          .head_dim = s.head_dim,
          .adjacent_pairs = s.decoder.adjacent_pairs};
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
      ranks_(part.ranks),
      pieces_(normed_pieces(sizes, slots)) {
  if (sizes.decoder.learned_positions || !stage.rotates) return;
  table_ = rope_of(sizes, stage, max_seq_len, false, part, device);
  if (!sizes.rope_scaling || sizes.rope_scaling->type != config::RopeType::longrope) return;
  short_length_ = sizes.rope_scaling->original_max_position_embeddings;
  if (max_seq_len > short_length_) long_table_ = rope_of(sizes, stage, max_seq_len, true, part, device);
}

kernels::RopeTable QueriesAndKeys::table_of(const Microbatch& m) const {
  invariant(ranks_ == 1 || (m.seq_len == table_.cos.size(0) && m.past == 0),
            "sequences that are divided have one length");
  kernels::RopeTable table =
      long_table_.cos.defined() && m.past + m.seq_len * ranks_ > short_length_ ? long_table_ : table_;
  if (m.past > 0) table.cos = table.cos.slice(0, m.past), table.sin = table.sin.slice(0, m.past);
  return table;
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
    for (std::size_t i = 0; i < pieces_.size(); ++i) {
      const NormedPiece& piece = pieces_[i];
      const at::Tensor from = raw.slice(1, piece.begin, piece.end), to = qk.slice(1, piece.begin, piece.end);
      const at::Tensor statistics = rstd.select(0, static_cast<std::int64_t>(i));
      if (again)
        kernels::rms_norm_again(from, parameters[piece.weight], statistics, to, norm_offset());
      else
        kernels::rms_norm(from, parameters[piece.weight], eps_, to, statistics, norm_offset());
    }
  }
  if (table_.cos.defined()) kernels::rotate(qk, table_of(microbatch), microbatch.seq_len, kernels::Rotation::forward);
  return qk;
}

std::vector<at::Tensor> QueriesAndKeys::backward(const at::Tensor& d_qk, const at::Tensor& qk,
                                                 std::span<const at::Tensor> parameters, const Microbatch& microbatch,
                                                 const at::Tensor& rstd) const {
  if (table_.cos.defined()) kernels::rotate(d_qk, table_of(microbatch), microbatch.seq_len, kernels::Rotation::inverse);
  std::vector<at::Tensor> d_weights;
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
