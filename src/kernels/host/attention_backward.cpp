// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "kernels/host/attention_operands.hpp"
#include "kernels/simd/block_product.hpp"
#include "kernels/simd/lanes.hpp"
#include "kernels/simd/row_kernels.hpp"

namespace trireme::kernels {
namespace {

// Everything is kept with keys as rows and queries as columns: the probabilities P^T and their gradient dS^T [keys,
// query_block] are then an operand as they are in all three products that follow.

/// Scratch memory of a worker in named parts. Each head is a left operand along its width, [padded, terms], and a right
/// operand along its rows, [terms of padded, width]: the same floats, different pairs. Parts are for the wider of keys
/// and values.
template <class Element>
struct Pieces {
  Element *keys, *values, *queries, *d_outs;       ///< along the width
  Element *key_terms, *query_terms, *d_out_terms;  ///< along rows
  Element *query_t, *d_out_t;                      ///< [terms of the width, query_block]
  Element* d_s_terms;                              ///< [terms of key_block, query_block]; pairs only
  float *d_keys, *d_values;                        ///< [padded, width] each
  float* d_query;                                  ///< [query_block, head_dim]
  float *p, *d_s;                                  ///< [key_block, query_block]
  float *lse, *delta;                              ///< [padded]

  Pieces(float* at, const AttentionShape& s) {
    const auto take = [&at](std::int64_t floats) { return std::exchange(at, at + floats); };
    const auto take_elements = [&](std::int64_t n) { return reinterpret_cast<Element*>(take(terms_of<Element>(n))); };
    const std::int64_t head = padded_length(s) * widest(s);
    const std::int64_t block = query_block * widest(s);
    for (Element** piece : {&keys, &values, &queries, &d_outs}) *piece = take_elements(head);
    if constexpr (std::is_same_v<Element, Pair>) {
      for (Element** piece : {&key_terms, &query_terms, &d_out_terms}) *piece = take_elements(head);
      d_s_terms = take_elements(key_block * query_block);
    } else {
      key_terms = keys, query_terms = queries, d_out_terms = d_outs, d_s_terms = nullptr;
    }
    for (Element** piece : {&query_t, &d_out_t}) *piece = take_elements(block);
    for (float** piece : {&d_keys, &d_values}) *piece = take(head);
    d_query = take(block);
    for (float** piece : {&p, &d_s}) *piece = take(key_block * query_block);
    for (float** piece : {&lse, &delta}) *piece = take(padded_length(s));
  }
};

/// Both operands of a head.
template <class Element, class T>
void pack(Head<const T> head, Element* rows, Element* terms) {
  pack_rows(head, rows);
  if (terms != rows) pack_terms(head, terms);
}

/// p becomes exp(scale * score - lse), d_s becomes p * (d_s - delta) * scale, with a softcap times its slope; zero if
/// the key is after the query or before its first visible key. p: raw scores, d_s: gradients of the probabilities, both
/// the first `rows` of [n, query_block]; the block's keys start at `key`, its queries at `query`.
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
template <class Element, class T>
void statistics(Head<const T> d_out, Head<const T> out, const float* logsumexp, const Pieces<Element>& w) {
  for (std::int64_t t = 0; t < d_out.count; ++t) {
    prefetch_row(out, t);
    const T* a = d_out.data + t * d_out.stride;
    const T* b = out.data + t * out.stride;
    w.delta[t] =
        lane_sum(out.width, [&](std::int64_t d, auto lanes) { return load(a + d, lanes) * load(b + d, lanes); });
  }
  std::copy_n(logsumexp, d_out.count, w.lse);
  std::fill(w.delta + d_out.count, w.delta + padded(d_out.count), 0.0F);
  std::fill(w.lse + d_out.count, w.lse + padded(d_out.count), 0.0F);
}

/// One block of a run's queries against all keys that it sees: adds to d_keys and d_values, overwrites d_query.
template <class Element>
void backward_block(std::int64_t begin, const QueryRun& run, const AttentionShape& s,
                    const std::int32_t* document_begin, const Pieces<Element>& w) {
  const FirstKeys first_keys(document_begin, begin, run, s);
  const std::int64_t first = first_keys.block(), end = run.end_of_keys(begin, s), rows = run.rows(begin);
  const std::int64_t dim = s.head_dim, terms = terms_of<Element>(dim), begin_term = terms_of<Element>(begin);
  const std::int64_t width = s.value_width(), value_terms = terms_of<Element>(width);
  const float scale = scale_of(s);
  transpose_block(w.queries + begin * terms, rows, terms, w.query_t, query_block);
  transpose_block(w.d_outs + begin * value_terms, rows, value_terms, w.d_out_t, query_block);
  for (std::int64_t key = first; key < end; key += key_block) {
    const std::int64_t n = std::min(key_block, end - key);
    block_product({n, rows, terms}, {w.keys + key * terms, terms}, {w.query_t, query_block}, {w.p, query_block}, false);
    block_product({n, rows, value_terms}, {w.values + key * value_terms, value_terms}, {w.d_out_t, query_block},
                  {w.d_s, query_block}, false);
    probabilities(w.p, w.d_s, n, rows, key, run.position + begin, w.lse + begin, w.delta + begin, scale,
                  static_cast<float>(s.softcap), first_keys);
    const Element* p = as_elements<Element>(w.p, query_block, n, rows);
    const Element* d_s = as_elements<Element>(w.d_s, query_block, n, rows);
    block_product({n, width, terms_of<Element>(rows)}, {p, query_block}, {w.d_out_terms + begin_term * width, width},
                  {w.d_values + key * width, width}, true);
    block_product({n, dim, terms_of<Element>(rows)}, {d_s, query_block}, {w.query_terms + begin_term * dim, dim},
                  {w.d_keys + key * dim, dim}, true);
    block_product_transposed({rows, dim, terms_of<Element>(n)},
                             {along_rows(d_s, query_block, n, rows, w.d_s_terms), query_block},
                             {w.key_terms + terms_of<Element>(key) * dim, dim}, {w.d_query, dim}, key > first);
  }
}

/// `count` rows of a head, from row `begin` on.
template <class T>
void unpack(const float* from, std::int64_t begin, std::int64_t count, Head<T> head) {
  for (std::int64_t t = begin; t < begin + count; ++t, from += head.width) {
    prefetch_row<true>(head, t);
    for (std::int64_t d = 0; d < head.width; ++d) put(head.data[t * head.stride + d], from[d]);
  }
}

template <class Element, class T>
void heads(const BackwardArguments<T>& a, const AttentionShape& s, std::int64_t sequence, std::int64_t kv_head,
           float* workspace) {
  const Pieces<Element> w(workspace, s);
  pack(keys_of(a.k, s, sequence, kv_head), w.keys, w.key_terms);
  pack_rows(values_of(a.v, s, sequence, kv_head), w.values);
  std::fill(w.d_keys, w.d_keys + padded_length(s) * s.head_dim, 0.0F);
  std::fill(w.d_values, w.d_values + padded_length(s) * s.value_width(), 0.0F);
  const std::int64_t group = s.heads / s.kv_heads;
  for (std::int64_t head = kv_head * group; head < (kv_head + 1) * group; ++head) {
    for (const QueryRun& run : runs_of(s)) {
      const Head<const T> d_out = outputs_of(a.d_out, s, sequence, run, head);
      pack(queries_of(a.q, s, sequence, run, head), w.queries, w.query_terms);
      pack(d_out, w.d_outs, w.d_out_terms);
      statistics(d_out, outputs_of(a.out, s, sequence, run, head),
                 a.logsumexp + (sequence * s.heads + head) * s.queries() + run.first, w);
      const Head<T> d_q = queries_of(a.d_q, s, sequence, run, head);
      for (std::int64_t begin = 0; begin < run.count; begin += query_block) {
        backward_block(begin, run, s, a.begins(s, sequence, run), w);
        unpack(w.d_query, begin, std::min(query_block, run.count - begin), d_q);
      }
    }
  }
  unpack(w.d_keys, 0, s.seq_len, keys_of(a.d_k, s, sequence, kv_head));
  unpack(w.d_values, 0, s.seq_len, values_of(a.d_v, s, sequence, kv_head));
}

}  // namespace

std::int64_t backward_workspace(const AttentionShape& s) {
  return 6 * padded_length(s) * widest(s) + 3 * query_block * widest(s) + 5 * (key_block * query_block / 2) +
         2 * padded_length(s);
}

template <class T>
void backward_heads(const BackwardArguments<T>& arguments, const AttentionShape& s, std::int64_t sequence,
                    std::int64_t kv_head, float* workspace) {
  with_element<T>(s, [&]<class Element>(Element) { heads<Element>(arguments, s, sequence, kv_head, workspace); });
}

template void backward_heads(const BackwardArguments<float>&, const AttentionShape&, std::int64_t, std::int64_t,
                             float*);
template void backward_heads(const BackwardArguments<c10::BFloat16>&, const AttentionShape&, std::int64_t, std::int64_t,
                             float*);

}  // namespace trireme::kernels
