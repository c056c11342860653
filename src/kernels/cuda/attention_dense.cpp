// SPDX-License-Identifier: Apache-2.0
//
// Attention by matrix products of libtorch's operators, a sequence and a block of queries at a time, in fp32.
#include <ATen/TensorOperators.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/logsumexp.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <limits>

#include "kernels/cuda/attention_heads.hpp"

namespace trireme::kernels::cuda {
namespace {

/// Sequence b of x in fp32, every key and value head once for each query head of its group: [heads, T, head_dim].
at::Tensor sequence(const at::Tensor& x, const AttentionShape& s, std::int64_t heads, std::int64_t b) {
  const at::Tensor one = by_head(x, s, heads).select(0, b).to(at::kFloat);
  return heads == s.heads ? one.contiguous() : one.repeat_interleave(s.heads / heads, 0);
}

std::int64_t query_block(const AttentionShape& s) {
  constexpr std::int64_t scores = 64 << 20;
  const std::int64_t most = std::max<std::int64_t>(1, scores / (s.heads * s.seq_len));
  return s.window > 0 ? std::min(most, std::max<std::int64_t>(s.window, 64)) : most;  // so that few keys are in vain
}

/// The first key that a query from `begin` on sees.
std::int64_t first_key(std::int64_t begin, const AttentionShape& s) {
  return s.window > 0 ? std::max<std::int64_t>(0, begin - s.window + 1) : 0;
}

/// Scores of queries [begin, end) against all keys visible to one of them, [heads, end - begin, end - first], with
/// their softcap.
at::Tensor scores_of(const at::Tensor& q, const at::Tensor& k, std::int64_t begin, std::int64_t end,
                     const AttentionShape& s) {
  at::Tensor scores =
      at::bmm(q.slice(1, begin, end), k.slice(1, first_key(begin, s), end).transpose(1, 2)).mul_(s.score_scale());
  return s.softcap > 0 ? scores.div_(s.softcap).tanh_().mul_(s.softcap) : scores;
}

/// -infinity after a query, and before its window.
void hide(const at::Tensor& scores, std::int64_t begin, std::int64_t end, const AttentionShape& s) {
  const std::int64_t first = first_key(begin, s);
  const at::Tensor all = at::ones({end - begin, end - first}, scores.options().dtype(at::kBool));
  scores.masked_fill_(all.triu(begin - first + 1), -std::numeric_limits<float>::infinity());
  if (s.window > 0) scores.masked_fill_(all.tril(begin - first - s.window), -std::numeric_limits<float>::infinity());
}

/// Sums the heads of each group: [heads, T, head_dim] to [kv_heads, T, head_dim].
at::Tensor grouped(const at::Tensor& x, const AttentionShape& s) {
  return x.view({s.kv_heads, s.heads / s.kv_heads, s.seq_len, s.head_dim}).sum(1);
}

}  // namespace

void dense_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const AttentionShape& s,
                     const at::Tensor& out, const at::Tensor& logsumexp) {
  for (std::int64_t b = 0; b < s.batch; ++b) {
    const at::Tensor qs = sequence(q, s, s.heads, b), ks = sequence(k, s, s.kv_heads, b),
                     vs = sequence(v, s, s.kv_heads, b);
    for (std::int64_t begin = 0; begin < s.seq_len; begin += query_block(s)) {
      const std::int64_t end = std::min(s.seq_len, begin + query_block(s));
      const at::Tensor scores = scores_of(qs, ks, begin, end, s);
      hide(scores, begin, end, s);
      const at::Tensor lse = at::logsumexp(scores, -1);
      logsumexp.select(0, b).slice(1, begin, end).copy_(lse);
      by_head(out, s, s.heads)
          .select(0, b)
          .slice(1, begin, end)
          .copy_(at::bmm((scores - lse.unsqueeze(-1)).exp_(), vs.slice(1, first_key(begin, s), end)));
    }
  }
}

void dense_attention_backward(const at::Tensor& d_out, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                              const at::Tensor& out, const at::Tensor& logsumexp, const AttentionShape& s,
                              const at::Tensor& d_q, const at::Tensor& d_k, const at::Tensor& d_v) {
  for (std::int64_t b = 0; b < s.batch; ++b) {
    const at::Tensor qs = sequence(q, s, s.heads, b), ks = sequence(k, s, s.kv_heads, b),
                     vs = sequence(v, s, s.kv_heads, b), upstream = sequence(d_out, s, s.heads, b);
    const at::Tensor delta = (upstream * sequence(out, s, s.heads, b)).sum(-1, true);
    const at::Tensor d_ks = at::zeros_like(ks), d_vs = at::zeros_like(vs);
    for (std::int64_t begin = 0; begin < s.seq_len; begin += query_block(s)) {
      const std::int64_t end = std::min(s.seq_len, begin + query_block(s));
      const std::int64_t first = first_key(begin, s);
      const at::Tensor lse = logsumexp.select(0, b).slice(1, begin, end).unsqueeze(-1);
      const at::Tensor scores = scores_of(qs, ks, begin, end, s);
      const at::Tensor slope = s.softcap > 0 ? 1 - (scores / s.softcap).square_() : at::Tensor();
      hide(scores, begin, end, s);
      const at::Tensor p = scores.sub_(lse).exp_();
      const at::Tensor g = upstream.slice(1, begin, end);
      const at::Tensor d_s = at::bmm(g, vs.slice(1, first, end).transpose(1, 2))
                                 .sub_(delta.slice(1, begin, end))
                                 .mul_(p)
                                 .mul_(s.score_scale());
      if (slope.defined()) d_s.mul_(slope);
      by_head(d_q, s, s.heads).select(0, b).slice(1, begin, end).copy_(at::bmm(d_s, ks.slice(1, first, end)));
      d_ks.slice(1, first, end).add_(at::bmm(d_s.transpose(1, 2), qs.slice(1, begin, end)));
      d_vs.slice(1, first, end).add_(at::bmm(p.transpose(1, 2), g));
    }
    by_head(d_k, s, s.kv_heads).select(0, b).copy_(grouped(d_ks, s));
    by_head(d_v, s, s.kv_heads).select(0, b).copy_(grouped(d_vs, s));
  }
}

}  // namespace trireme::kernels::cuda
