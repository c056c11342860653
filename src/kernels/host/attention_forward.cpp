// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/host/attention_operands.hpp"
#include "kernels/simd/block_product.hpp"
#include "kernels/simd/row_kernels.hpp"

namespace trireme::kernels {
namespace {

/// Running softmax of a block of query rows (FlashAttention-2, Dao 2023): maximum of the raw scores, sum of
/// exponentials.
struct Running {
  float top[query_block], sum[query_block];
};

/// Turns a row of raw scores into exponentials; the columns from `hidden` to `visible` of `n` count, the others become
/// zero. A row may see nothing in its first blocks of keys: its maximum is -inf until then.
void softmax_row(float* row, std::int64_t hidden, std::int64_t visible, std::int64_t n, float scale, float& top,
                 float& sum, float* out, std::int64_t width, bool first) {
  if (hidden >= visible) {
    if (first) top = -std::numeric_limits<float>::infinity(), sum = 0;
    return std::fill(row, row + n, 0.0F);
  }
  std::fill(row, row + hidden, 0.0F);
  const float here = row_kernels.maximum(row + hidden, visible - hidden);
  const float before = top;
  top = first ? here : std::max(before, here);
  if (!first && top != before) {
    const float shrink = std::exp(scale * (before - top));
    sum *= shrink;
    for (std::int64_t d = 0; d < width; ++d) out[d] *= shrink;
  }
  sum = (first ? 0.0F : sum) + row_kernels.exponentials(row + hidden, visible - hidden, scale, top);
  std::fill(row + visible, row + n, 0.0F);
}

static_assert(query_block % panel_width == 0 && key_block % panel_width == 0);

/// One run of a query head. q: [padded, terms of head_dim]; keys_t: [padded / 64, terms of head_dim, 64]; values:
/// [terms of padded, value_width].
template <class Element, class T>
void forward_head(const Element* q, const Element* keys_t, const Element* values, const AttentionShape& s,
                  const QueryRun& run, Head<T> out, float* logsumexp, const std::int32_t* document_begin, float* scores,
                  float* sums) {
  // A softcap leaves scaled scores.
  const float scale = s.softcap > 0 ? 1.0F : scale_of(s);
  const std::int64_t terms = terms_of<Element>(s.head_dim), width = s.value_width();
  Running running;
  for (std::int64_t begin = 0; begin < run.count; begin += query_block) {
    const FirstKeys first_keys(document_begin, begin, run, s);
    const std::int64_t first = first_keys.block(), end = run.end_of_keys(begin, s), rows = run.rows(begin);
    for (std::int64_t key = first; key < end; key += key_block) {
      const std::int64_t n = std::min(key_block, end - key);
      for (std::int64_t panel = 0; panel < n; panel += panel_width) {
        block_product({rows, std::min(panel_width, n - panel), terms}, {q + begin * terms, terms},
                      {keys_t + (key + panel) * terms, panel_width}, {scores + panel, key_block}, false);
      }
      for (std::int64_t r = 0; r < rows; ++r) {
        if (s.softcap > 0) row_kernels.softcap(scores + r * key_block, n, scale_of(s), static_cast<float>(s.softcap));
        softmax_row(scores + r * key_block, std::max<std::int64_t>(first_keys.of[r] - key, 0),
                    std::min(n, run.position + begin + r + 1 - key), n, scale, running.top[r], running.sum[r],
                    sums + r * width, width, key == first);
      }
      block_product({rows, width, terms_of<Element>(n)}, {as_elements<Element>(scores, key_block, rows, n), key_block},
                    {values + terms_of<Element>(key) * width, width}, {sums, width}, key > first);
    }
    for (std::int64_t r = 0; r < std::min(query_block, run.count - begin); ++r) {
      const float inverse = 1.0F / running.sum[r];
      T* to = out.data + (begin + r) * out.stride;
      for (std::int64_t d = 0; d < width; ++d) put(to[d], sums[r * width + d] * inverse);
      logsumexp[begin + r] = scale * running.top[r] + std::log(running.sum[r]);
    }
  }
}

template <class Element, class T>
void heads(const ForwardArguments<T>& a, const AttentionShape& s, std::int64_t sequence, std::int64_t kv_head,
           float* workspace) {
  const std::int64_t size = padded_length(s) * widest(s), terms = terms_of<Element>(s.head_dim);
  auto* keys_t = reinterpret_cast<Element*>(workspace);
  Element* values = keys_t + size;
  Element* queries = values + size;
  float* scores = workspace + 3 * size;
  float* sums = scores + query_block * key_block;
  pack_rows(keys_of(a.k, s, sequence, kv_head), values);
  for (std::int64_t panel = 0; panel < padded_length(s); panel += panel_width) {
    transpose_block(values + panel * terms, panel_width, terms, keys_t + panel * terms, panel_width);
  }
  pack_terms(values_of(a.v, s, sequence, kv_head), values);
  const std::int64_t group = s.heads / s.kv_heads;
  for (std::int64_t head = kv_head * group; head < (kv_head + 1) * group; ++head) {
    for (const QueryRun& run : runs_of(s)) {
      pack_rows(queries_of(a.q, s, sequence, run, head), queries);
      forward_head(queries, keys_t, values, s, run, outputs_of(a.out, s, sequence, run, head),
                   a.logsumexp + (sequence * s.heads + head) * s.queries() + run.first, a.begins(s, sequence, run),
                   scores, sums);
    }
  }
}

}  // namespace

std::int64_t forward_workspace(const AttentionShape& s) {
  return 3 * padded_length(s) * widest(s) + query_block * (key_block + s.value_width());
}

template <class T>
void forward_heads(const ForwardArguments<T>& arguments, const AttentionShape& s, std::int64_t sequence,
                   std::int64_t kv_head, float* workspace) {
  with_element<T>(s, [&]<class Element>(Element) { heads<Element>(arguments, s, sequence, kv_head, workspace); });
}

template void forward_heads(const ForwardArguments<float>&, const AttentionShape&, std::int64_t, std::int64_t, float*);
template void forward_heads(const ForwardArguments<c10::BFloat16>&, const AttentionShape&, std::int64_t, std::int64_t,
                            float*);

}  // namespace trireme::kernels
