// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "kernels/simd/rows.hpp"
#include "trireme/base/ceil_div.hpp"
#include "trireme/kernels/attention.hpp"

/// Attention of one key and value head and the query heads that share it, in blocks: sums and softmax in fp32, products
/// of bf16 by pairs where the CPU has them (probabilities and their gradients are then rounded to bf16, as in
/// FlashAttention), in fp32 elsewhere.
namespace trireme::kernels {

inline constexpr std::int64_t query_block = 64;
inline constexpr std::int64_t key_block = 512;

/// Rounded up to whole query blocks: rows beyond are zero, so that few shapes of products occur.
inline std::int64_t padded(std::int64_t rows) { return ceil_div(rows, query_block) * query_block; }
inline std::int64_t padded_length(const AttentionShape& s) { return padded(s.seq_len); }
/// The wider of a head of keys and one of values.
inline std::int64_t widest(const AttentionShape& s) { return std::max(s.head_dim, s.value_width()); }
/// Rows processed for `rows` rows up to a block's end: whole vectors, at most the block.
inline std::int64_t in_vectors(std::int64_t rows, std::int64_t most) { return std::min((rows + 15) / 16 * 16, most); }

/// Consecutive queries of a sequence: all of them, or one of two runs.
struct QueryRun {
  std::int64_t first = 0;  ///< its first, counted in the sequence's queries
  std::int64_t count = 0;
  std::int64_t position = 0;  ///< the key of the same token as its first query

  /// The queries of the block that begins at query `begin`, in whole vectors.
  [[nodiscard]] std::int64_t rows(std::int64_t begin) const { return in_vectors(count - begin, query_block); }
  /// Behind the last key that a query of that block sees, in whole vectors.
  [[nodiscard]] std::int64_t end_of_keys(std::int64_t begin, const AttentionShape& s) const {
    return in_vectors(position + begin + std::min(count - begin, query_block), padded_length(s));
  }
};

/// All runs of a sequence's queries.
struct QueryRuns {
  QueryRun runs[2];
  int count;
  [[nodiscard]] const QueryRun* begin() const { return runs; }
  [[nodiscard]] const QueryRun* end() const { return runs + count; }
};
inline QueryRuns runs_of(const AttentionShape& s) {
  if (s.run == 0) return {.runs = {{.first = 0, .count = s.seq_len, .position = 0}}, .count = 1};
  return {.runs = {{.first = 0, .count = s.run, .position = s.run_begin[0]},
                   {.first = s.run, .count = s.run, .position = s.run_begin[1]}},
          .count = 2};
}

/// Factor of the scores.
inline float scale_of(const AttentionShape& s) {
  return s.scale > 0 ? static_cast<float>(s.scale) : 1.0F / std::sqrt(static_cast<float>(s.head_dim));
}

/// One head of `count` rows, from row `first` on, inside [.., heads * width].
template <class T>
struct Head {
  T* data;
  std::int64_t stride;
  std::int64_t count;
  std::int64_t width;

  Head(Rows<T> rows, std::int64_t width, std::int64_t first, std::int64_t count, std::int64_t head)
      : data(rows[first] + head * width), stride(rows.stride), count(count), width(width) {}
};
/// A head of the keys of a sequence; of its values.
template <class T>
Head<T> keys_of(Rows<T> rows, const AttentionShape& s, std::int64_t sequence, std::int64_t head) {
  return {rows, s.head_dim, sequence * s.seq_len, s.seq_len, head};
}
template <class T>
Head<T> values_of(Rows<T> rows, const AttentionShape& s, std::int64_t sequence, std::int64_t head) {
  return {rows, s.value_width(), sequence * s.seq_len, s.seq_len, head};
}
/// A head of a run of the queries of a sequence; of the output, or of its gradient.
template <class T>
Head<T> queries_of(Rows<T> rows, const AttentionShape& s, std::int64_t sequence, const QueryRun& run,
                   std::int64_t head) {
  return {rows, s.head_dim, sequence * s.queries() + run.first, run.count, head};
}
template <class T>
Head<T> outputs_of(Rows<T> rows, const AttentionShape& s, std::int64_t sequence, const QueryRun& run,
                   std::int64_t head) {
  return {rows, s.value_width(), sequence * s.queries() + run.first, run.count, head};
}

/// Visible keys of a block of `query_block` queries: the first key of each query. It never decreases from one query to
/// the next.
struct FirstKeys {
  std::int64_t of[query_block] = {};

  /// document_begin: of this run, or null. begin: the block's first query of the run; those after it are like the last.
  FirstKeys(const std::int32_t* document_begin, std::int64_t begin, const QueryRun& run, const AttentionShape& s) {
    if (document_begin == nullptr && s.window == 0) return;
    for (std::int64_t r = 0; r < query_block; ++r) {
      const std::int64_t query = std::min(begin + r, run.count - 1);
      if (document_begin != nullptr) of[r] = document_begin[query];
      if (s.window > 0) of[r] = std::max(of[r], run.position + query - s.window + 1);
    }
  }
  /// The first block of keys that any query sees: the multiple of query_block before its first.
  [[nodiscard]] std::int64_t block() const { return of[0] / query_block * query_block; }
};

/// Floats of workspace of a worker, for all element types.
std::int64_t forward_workspace(const AttentionShape& s);
std::int64_t backward_workspace(const AttentionShape& s);

template <class T>
struct ForwardArguments {
  Rows<const T> q, k, v;
  Rows<T> out;
  float* logsumexp;
  const std::int32_t* document_begin;  ///< [B*Q], or null

  /// Document begins of a run of a sequence, or null.
  [[nodiscard]] const std::int32_t* begins(const AttentionShape& s, std::int64_t sequence, const QueryRun& run) const {
    return document_begin == nullptr ? nullptr : document_begin + sequence * s.queries() + run.first;
  }
};
template <class T>
void forward_heads(const ForwardArguments<T>& arguments, const AttentionShape& s, std::int64_t sequence,
                   std::int64_t kv_head, float* workspace);

template <class T>
struct BackwardArguments {
  Rows<const T> d_out, q, k, v, out;
  const float* logsumexp;
  Rows<T> d_q, d_k, d_v;
  const std::int32_t* document_begin;  ///< [B*Q], or null

  /// Document begins of a run of a sequence, or null.
  [[nodiscard]] const std::int32_t* begins(const AttentionShape& s, std::int64_t sequence, const QueryRun& run) const {
    return document_begin == nullptr ? nullptr : document_begin + sequence * s.queries() + run.first;
  }
};
template <class T>
void backward_heads(const BackwardArguments<T>& arguments, const AttentionShape& s, std::int64_t sequence,
                    std::int64_t kv_head, float* workspace);

}  // namespace trireme::kernels
