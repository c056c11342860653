// SPDX-License-Identifier: Apache-2.0
//
// Attention of runs of queries over the keys and values of whole sequences (context parallelism): every run, or its
// part of a document, is attention of the last tokens of some keys, so that the causal mask is aligned at the bottom
// right.
#include "kernels/cuda/attention_runs.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/ops/_flash_attention_backward.h>
#include <ATen/ops/_flash_attention_forward.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>

#include <optional>
#include <vector>

#include "kernels/cuda/attention_heads.hpp"

namespace trireme::kernels::cuda {
namespace {

/// Consecutive queries of one document, and its keys up to the last of them.
struct Piece {
  std::int64_t row, query;  ///< where the queries begin in the log-sum-exp: [row, heads, query]
  std::int64_t first_query, queries, first_key, keys;

  [[nodiscard]] at::Tensor queries_of(const at::Tensor& x) const { return x.narrow(0, first_query, queries); }
  [[nodiscard]] at::Tensor keys_of(const at::Tensor& x) const { return x.narrow(0, first_key, keys); }
  [[nodiscard]] at::Tensor logsumexp_of(const at::Tensor& all) const {
    return all.narrow(0, row, 1).narrow(2, query, queries);
  }
};

std::vector<Piece> pieces_of(const AttentionShape& s, const at::Tensor& document_begin) {
  const auto* const begins = document_begin.defined() ? document_begin.const_data_ptr<std::int32_t>() : nullptr;
  std::vector<Piece> pieces;
  for (std::int64_t row = 0; row < s.batch; ++row)
    for (std::int64_t r = 0; r < 2; ++r)
      for (std::int64_t i = 0; i < s.run;) {
        const std::int64_t query = r * s.run + i, first = row * s.queries() + query;
        const std::int64_t begin = begins != nullptr ? begins[first] : 0;
        std::int64_t count = 1;
        while (i + count < s.run && (begins == nullptr || begins[first + count] == begin)) ++count;
        i += count;
        pieces.push_back({.row = row,
                          .query = query,
                          .first_query = first,
                          .queries = count,
                          .first_key = row * s.seq_len + begin,
                          .keys = s.run_begin[static_cast<std::size_t>(r)] + i - begin});
      }
  return pieces;
}

/// A piece as a sequence of its keys, each a query: dense has no other shape. Queries before the piece are 0, and so
/// are their outputs.
AttentionShape square(AttentionShape of, const Piece& piece) {
  of.batch = 1;
  of.seq_len = piece.keys;
  of.run = 0;
  if (of.window >= of.seq_len) of.window = 0;
  return of;
}
/// x after zeros, along a dimension.
at::Tensor behind_zeros(const at::Tensor& x, const Piece& piece, std::int64_t dimension) {
  std::vector<std::int64_t> sizes = x.sizes().vec();
  sizes[static_cast<std::size_t>(dimension)] = piece.keys;
  const at::Tensor padded = at::zeros(sizes, x.options());
  padded.narrow(dimension, piece.keys - piece.queries, piece.queries).copy_(x);
  return padded;
}
at::Tensor own_of(const at::Tensor& padded, const Piece& piece, std::int64_t dimension) {
  return padded.narrow(dimension, piece.keys - piece.queries, piece.queries);
}

/// [T, heads * head_dim] as flash takes it: [1, T, heads, head_dim].
at::Tensor tokens(const at::Tensor& x, std::int64_t heads, const AttentionShape& s) {
  return x.view({1, x.size(0), heads, s.head_dim});
}
/// Keys before a query that it sees; absent: all.
std::optional<std::int64_t> before(const AttentionShape& s) {
  return s.window > 0 ? std::optional(s.window - 1) : std::nullopt;
}
std::optional<std::int64_t> after(const AttentionShape& s) {
  return s.window > 0 ? std::optional<std::int64_t>(0) : std::nullopt;
}

}  // namespace

void attention_of_runs(AttentionLibrary library, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                       const AttentionShape& s, const at::Tensor& out, const at::Tensor& logsumexp,
                       const at::Tensor& document_begin) {
  for (const Piece& piece : pieces_of(s, document_begin)) {
    const at::Tensor qs = piece.queries_of(q), ks = piece.keys_of(k), vs = piece.keys_of(v);
    if (library == AttentionLibrary::dense) {
      const AttentionShape shape = square(s, piece);
      const at::Tensor padded = behind_zeros(qs, piece, 0), all = at::empty_like(padded);
      const at::Tensor lse = at::empty({1, s.heads, piece.keys}, logsumexp.options());
      dense_attention(padded, ks, vs, shape, all, lse);
      piece.queries_of(out).copy_(own_of(all, piece, 0));
      piece.logsumexp_of(logsumexp).copy_(own_of(lse, piece, 2));
      continue;
    }
    const auto result = at::_flash_attention_forward(tokens(qs, s.heads, s), tokens(ks, s.kv_heads, s),
                                                     tokens(vs, s.kv_heads, s), {}, {}, piece.queries, piece.keys, 0.0,
                                                     true, false, s.score_scale(), before(s), after(s));
    tokens(piece.queries_of(out), s.heads, s).copy_(std::get<0>(result));
    const at::Tensor to = piece.logsumexp_of(logsumexp);
    to.copy_(std::get<1>(result).reshape(to.sizes()));
  }
}

void attention_of_runs_backward(AttentionLibrary library, const at::Tensor& d_out, const at::Tensor& q,
                                const at::Tensor& k, const at::Tensor& v, const at::Tensor& out,
                                const at::Tensor& logsumexp, const AttentionShape& s, const at::Tensor& d_q,
                                const at::Tensor& d_k, const at::Tensor& d_v, const at::Tensor& document_begin) {
  // Runs see the same keys: their terms are summed in fp32.
  const at::Tensor sum_k = at::zeros({k.size(0), k.size(1)}, k.options().dtype(at::kFloat)),
                   sum_v = at::zeros({v.size(0), v.size(1)}, sum_k.options());
  for (const Piece& piece : pieces_of(s, document_begin)) {
    const at::Tensor g = piece.queries_of(d_out), qs = piece.queries_of(q), ks = piece.keys_of(k),
                     vs = piece.keys_of(v), result = piece.queries_of(out), lse = piece.logsumexp_of(logsumexp);
    if (library == AttentionLibrary::dense) {
      const at::Tensor padded = behind_zeros(qs, piece, 0), d_padded = at::empty_like(padded);
      const at::Tensor d_ks = at::empty({piece.keys, k.size(1)}, sum_k.options()), d_vs = at::empty_like(d_ks);
      dense_attention_backward(behind_zeros(g, piece, 0), padded, ks, vs, behind_zeros(result, piece, 0),
                               behind_zeros(lse, piece, 2), square(s, piece), d_padded, d_ks, d_vs);
      piece.queries_of(d_q).copy_(own_of(d_padded, piece, 0));
      piece.keys_of(sum_k).add_(d_ks);
      piece.keys_of(sum_v).add_(d_vs);
      continue;
    }
    const auto [d_qs, d_ks, d_vs] = at::_flash_attention_backward(
        tokens(g, s.heads, s), tokens(qs, s.heads, s), tokens(ks, s.kv_heads, s), tokens(vs, s.kv_heads, s),
        tokens(result, s.heads, s), lse.contiguous(), {}, {}, piece.queries, piece.keys, 0.0, true,
        at::empty({2}, q.options().dtype(at::kUInt64)), at::empty({}, q.options().dtype(at::kUInt64)), s.score_scale(),
        before(s), after(s));
    tokens(piece.queries_of(d_q), s.heads, s).copy_(d_qs);
    tokens(piece.keys_of(sum_k), s.kv_heads, s).add_(d_ks);
    tokens(piece.keys_of(sum_v), s.kv_heads, s).add_(d_vs);
  }
  d_k.copy_(sum_k);
  d_v.copy_(sum_v);
}

}  // namespace trireme::kernels::cuda
