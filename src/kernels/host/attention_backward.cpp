// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "kernels/host/attention_head.hpp"
#include "kernels/simd/block_product.hpp"
#include "kernels/simd/lanes.hpp"
#include "kernels/simd/row_kernels.hpp"
#include "kernels/simd/transpose.hpp"

namespace trireme::kernels {
namespace {

// Everything is kept with keys as rows and queries as columns: the probabilities P^T and their gradient dS^T [keys,
// query_block] are then an operand as they are in all three products that follow, and no block is ever transposed.

/// The floats a worker needs, cut into named pieces.
struct Workspace {
  float *keys, *keys_t, *values, *d_keys, *d_values, *queries, *d_outs;  ///< [padded, head_dim] each; keys_t transposed
  float *query_t, *d_out_t, *d_query_t, *d_query;  ///< [head_dim, query_block]; d_query transposed
  float *p, *d_s;                                  ///< [key_block, query_block]
  float *lse, *delta;                              ///< [padded]

  Workspace(float* at, const AttentionShape& s) {
    const auto take = [&at](std::int64_t floats) { return std::exchange(at, at + floats); };
    const std::int64_t head = padded_length(s) * s.head_dim;
    const std::int64_t block = query_block * s.head_dim;
    for (float** piece : {&keys, &keys_t, &values, &d_keys, &d_values, &queries, &d_outs}) *piece = take(head);
    for (float** piece : {&query_t, &d_out_t, &d_query_t, &d_query}) *piece = take(block);
    for (float** piece : {&p, &d_s}) *piece = take(key_block * query_block);
    for (float** piece : {&lse, &delta}) *piece = take(padded_length(s));
  }
};

/// p becomes exp(scale * score - lse), d_s becomes p * (d_s - delta) * scale, with a softcap times its slope; zero
/// where the key comes after the query or before the first that it sees. p: raw scores, d_s: gradients of the
/// probabilities, both the first `rows` of [n, query_block]; the block's keys start at `key`, its queries at `query`.
void probabilities(float* p, float* d_s, std::int64_t n, std::int64_t rows, std::int64_t key, std::int64_t query,
                   const float* lse, const float* delta, float scale, float softcap, const FirstKeys& first_keys) {
  for (std::int64_t c = 0; c < n; ++c) {
    float* p_row = p + c * query_block;
    float* d_row = d_s + c * query_block;
    const std::int64_t hidden = std::clamp<std::int64_t>(key + c - query, 0, rows);  // queries before this key
    const std::int64_t r = hidden / 16 * 16;
    if (softcap > 0)
      row_kernels.capped_probabilities(p_row + r, d_row + r, lse + r, delta + r, scale, softcap, rows - r);
    else
      row_kernels.probabilities(p_row + r, d_row + r, lse + r, delta + r, scale, rows - r);
    std::fill(p_row, p_row + hidden, 0.0F);
    std::fill(d_row, d_row + hidden, 0.0F);
    const std::int64_t seen = std::upper_bound(first_keys.of, first_keys.of + rows, key + c) - first_keys.of;
    std::fill(p_row + seen, p_row + rows, 0.0F);
    std::fill(d_row + seen, d_row + rows, 0.0F);
  }
}

/// delta = sum of d_out * out over the head, for each query; lse is copied; zeros after the run.
template <class T>
void statistics(Head<const T> d_out, Head<const T> out, const float* logsumexp, const AttentionShape& s,
                const Workspace& w) {
  for (std::int64_t t = 0; t < d_out.count; ++t) {
    const T* a = d_out.data + t * d_out.stride;
    const T* b = out.data + t * out.stride;
    w.delta[t] =
        lane_sum(s.head_dim, [&](std::int64_t d, auto lanes) { return load(a + d, lanes) * load(b + d, lanes); });
  }
  std::copy_n(logsumexp, d_out.count, w.lse);
  std::fill(w.delta + d_out.count, w.delta + padded(d_out.count), 0.0F);
  std::fill(w.lse + d_out.count, w.lse + padded(d_out.count), 0.0F);
}

/// One block of a run's queries against all keys that it sees: adds to d_keys and d_values, overwrites d_query_t.
void backward_block(std::int64_t begin, const QueryRun& run, const AttentionShape& s,
                    const std::int32_t* document_begin, const Workspace& w) {
  const FirstKeys first_keys(document_begin, begin, run, s);
  const std::int64_t first = first_keys.block(), end = run.end_of_keys(begin, s), rows = run.rows(begin);
  const std::int64_t dim = s.head_dim;
  const float scale = scale_of(s);
  const float* queries = w.queries + begin * dim;
  const float* d_outs = w.d_outs + begin * dim;
  transpose(queries, dim, rows, dim, w.query_t, query_block);
  transpose(d_outs, dim, rows, dim, w.d_out_t, query_block);
  for (std::int64_t key = first; key < end; key += key_block) {
    const std::int64_t n = std::min(key_block, end - key);
    block_product(n, rows, dim, w.keys + key * dim, dim, w.query_t, query_block, w.p, query_block, false);
    block_product(n, rows, dim, w.values + key * dim, dim, w.d_out_t, query_block, w.d_s, query_block, false);
    probabilities(w.p, w.d_s, n, rows, key, run.position + begin, w.lse + begin, w.delta + begin, scale,
                  static_cast<float>(s.softcap), first_keys);
    block_product(n, dim, rows, w.p, query_block, d_outs, dim, w.d_values + key * dim, dim, true);
    block_product(n, dim, rows, w.d_s, query_block, queries, dim, w.d_keys + key * dim, dim, true);
    block_product(dim, rows, n, w.keys_t + key, padded_length(s), w.d_s, query_block, w.d_query_t, query_block,
                  key > first);
  }
}

template <class T>
void unpack(const float* from, std::int64_t rows, std::int64_t width, T* to, std::int64_t stride) {
  for (std::int64_t t = 0; t < rows; ++t) {
    for (std::int64_t d = 0; d < width; ++d) put(to[t * stride + d], from[t * width + d]);
  }
}

}  // namespace

std::int64_t backward_workspace(const AttentionShape& s) {
  return 7 * padded_length(s) * s.head_dim + 4 * query_block * s.head_dim + 2 * key_block * query_block +
         2 * padded_length(s);
}

template <class T>
void backward_heads(const BackwardArguments<T>& a, const AttentionShape& s, std::int64_t sequence, std::int64_t kv_head,
                    float* workspace) {
  const Workspace w(workspace, s);
  const std::int64_t size = padded_length(s) * s.head_dim;
  pack(keys_of(a.k, s, sequence, kv_head), s, w.keys);
  transpose(w.keys, s.head_dim, padded_length(s), s.head_dim, w.keys_t, padded_length(s));
  pack(keys_of(a.v, s, sequence, kv_head), s, w.values);
  std::fill(w.d_keys, w.d_keys + size, 0.0F);
  std::fill(w.d_values, w.d_values + size, 0.0F);
  const std::int64_t group = s.heads / s.kv_heads;
  for (std::int64_t head = kv_head * group; head < (kv_head + 1) * group; ++head) {
    for (const QueryRun& run : runs_of(s)) {
      const Head<const T> d_out = queries_of(a.d_out, s, sequence, run, head);
      pack(queries_of(a.q, s, sequence, run, head), s, w.queries);
      pack(d_out, s, w.d_outs);
      statistics(d_out, queries_of(a.out, s, sequence, run, head),
                 a.logsumexp + (sequence * s.heads + head) * s.queries() + run.first, s, w);
      const Head<T> d_q = queries_of(a.d_q, s, sequence, run, head);
      for (std::int64_t begin = 0; begin < run.count; begin += query_block) {
        backward_block(begin, run, s, a.begins(s, sequence, run), w);
        transpose(w.d_query_t, query_block, s.head_dim, run.rows(begin), w.d_query, s.head_dim);
        unpack(w.d_query, std::min(query_block, run.count - begin), s.head_dim, d_q.data + begin * d_q.stride,
               d_q.stride);
      }
    }
  }
  const Head<T> d_k = keys_of(a.d_k, s, sequence, kv_head);
  const Head<T> d_v = keys_of(a.d_v, s, sequence, kv_head);
  unpack(w.d_keys, s.seq_len, s.head_dim, d_k.data, d_k.stride);
  unpack(w.d_values, s.seq_len, s.head_dim, d_v.data, d_v.stride);
}

template void backward_heads(const BackwardArguments<float>&, const AttentionShape&, std::int64_t, std::int64_t,
                             float*);
template void backward_heads(const BackwardArguments<c10::BFloat16>&, const AttentionShape&, std::int64_t, std::int64_t,
                             float*);

}  // namespace trireme::kernels
