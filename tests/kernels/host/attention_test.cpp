// SPDX-License-Identifier: Apache-2.0
#include "trireme/kernels/attention.hpp"

#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/logical_or.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randn.h>
#include <gtest/gtest.h>

#include <cmath>
#include <iterator>
#include <limits>
#include <vector>

#include "kernels/pairs.hpp"
#include "support/tensors.hpp"

namespace trireme::kernels {
namespace {

using test::relative_error;

struct Run {
  at::Tensor qkv, d_out, out, logsumexp, d_qkv;
};

/// q, k and v as columns of one matrix, scaled so that attention is far from uniform.
Run run(const AttentionShape& s, at::ScalarType type, const at::Tensor& document_begin = {}) {
  const std::int64_t tokens = s.batch * s.seq_len;
  const std::int64_t q_end = s.heads * s.head_dim;
  const std::int64_t k_end = q_end + s.kv_heads * s.head_dim;
  Run r;
  r.qkv = (2 * at::randn({tokens, k_end + s.kv_heads * s.value_width()})).to(type);
  r.d_out = at::randn({tokens, s.heads * s.value_width()}).to(type);
  r.out = at::empty({tokens, s.heads * s.value_width()}, type);
  r.logsumexp = at::empty({s.batch, s.heads, s.seq_len}, at::kFloat);
  r.d_qkv = at::full(r.qkv.sizes(), std::numeric_limits<double>::quiet_NaN(), r.qkv.options());
  const auto part = [&](const at::Tensor& all, int which) {
    return which == 0 ? all.slice(1, 0, q_end) : (which == 1 ? all.slice(1, q_end, k_end) : all.slice(1, k_end));
  };
  causal_attention(part(r.qkv, 0), part(r.qkv, 1), part(r.qkv, 2), s, r.out, r.logsumexp, document_begin);
  causal_attention_backward(r.d_out, part(r.qkv, 0), part(r.qkv, 1), part(r.qkv, 2), r.out, r.logsumexp, s,
                            part(r.d_qkv, 0), part(r.d_qkv, 1), part(r.d_qkv, 2), document_begin);
  return r;
}

/// The formula, materialised, in fp64 under autograd.
void compare_with_autograd(const AttentionShape& s, at::ScalarType type, double tolerance, double gradient_tolerance,
                           const at::Tensor& document_begin = {}) {
  const Run r = run(s, type, document_begin);
  const at::Tensor qkv = r.qkv.to(at::kDouble).requires_grad_();
  const std::int64_t group = s.heads / s.kv_heads, q_end = s.heads * s.head_dim,
                     k_end = q_end + s.kv_heads * s.head_dim;
  const auto heads = [&](std::int64_t begin, std::int64_t end, std::int64_t count) {
    return qkv.slice(1, begin, end).reshape({s.batch, s.seq_len, count, -1}).transpose(1, 2);
  };
  const at::Tensor q = heads(0, q_end, s.heads);
  const at::Tensor k = heads(q_end, k_end, s.kv_heads).repeat_interleave(group, 1);
  const at::Tensor v = heads(k_end, qkv.size(1), s.kv_heads).repeat_interleave(group, 1);
  at::Tensor above = at::ones({s.seq_len, s.seq_len}, at::kBool).triu(1).expand({s.batch, 1, s.seq_len, s.seq_len});
  if (document_begin.defined())
    above = at::logical_or(above, document_begin.view({s.batch, 1, s.seq_len, 1}) > at::arange(s.seq_len));
  const at::Tensor scores =
      (q.matmul(k.transpose(2, 3)) / std::sqrt(static_cast<double>(s.head_dim))).masked_fill(above, -INFINITY);
  const at::Tensor out = scores.softmax(-1).matmul(v).transpose(1, 2).reshape({s.batch * s.seq_len, -1});
  out.backward(r.d_out.to(at::kDouble));
  EXPECT_LT(relative_error(r.out, out), tolerance);
  EXPECT_LT(relative_error(r.logsumexp, scores.logsumexp(-1)), tolerance);
  EXPECT_LT(relative_error(r.d_qkv, qkv.grad()), gradient_tolerance);
}

const AttentionShape odd_shapes[] = {
    {.batch = 1, .seq_len = 1, .heads = 1, .kv_heads = 1, .head_dim = 2},
    {.batch = 2, .seq_len = 7, .heads = 4, .kv_heads = 2, .head_dim = 6},
    {.batch = 3, .seq_len = 33, .heads = 6, .kv_heads = 1, .head_dim = 10},
    {.batch = 1, .seq_len = 70, .heads = 2, .kv_heads = 1, .head_dim = 9},  // not in pairs
    {.batch = 1, .seq_len = 150, .heads = 3, .kv_heads = 3, .head_dim = 16},
    {.batch = 1, .seq_len = 301, .heads = 4, .kv_heads = 2, .head_dim = 64},
    {.batch = 2, .seq_len = 131, .heads = 2, .kv_heads = 2, .head_dim = 24, .value_dim = 16},  // latent attention's
    {.batch = 2, .seq_len = 70, .heads = 4, .kv_heads = 2, .head_dim = 6, .value_dim = 14},
    {.batch = 1, .seq_len = 70, .heads = 2, .kv_heads = 2, .head_dim = 10, .value_dim = 7},  // pairs of keys only
};

TEST(CausalAttention, AgreesWithTheFormulaForOddShapes) {
  for (const auto& shape : odd_shapes) compare_with_autograd(shape, at::kFloat, 1e-6, 3e-6);
}

/// Documents of all lengths: where in its row each token's begins.
at::Tensor documents(const AttentionShape& s, double chance_of_an_end) {
  const at::Tensor begins = at::empty({s.batch * s.seq_len}, at::kInt);
  const at::Tensor chance = at::rand({s.batch * s.seq_len});
  for (std::int64_t i = 0; i < begins.numel(); ++i) {
    const std::int64_t t = i % s.seq_len;
    const bool first = t == 0 || chance.const_data_ptr<float>()[i] < chance_of_an_end;
    begins.mutable_data_ptr<std::int32_t>()[i] =
        static_cast<std::int32_t>(first ? t : begins.const_data_ptr<std::int32_t>()[i - 1]);
  }
  return begins;
}

TEST(DocumentAttention, AgreesWithTheFormulaUnderAMask) {
  std::vector<AttentionShape> shapes(std::begin(odd_shapes), std::end(odd_shapes));
  // Rows with no visible key in the first block of keys of their neighbours, and blocks of keys without queries.
  shapes.push_back({.batch = 2, .seq_len = 1300, .heads = 2, .kv_heads = 1, .head_dim = 16});
  for (const auto& shape : shapes)
    for (const double chance : {0.4, 0.02, 0.002}) {
      compare_with_autograd(shape, at::kFloat, 1e-6, 3e-6, documents(shape, chance));
      for (const bool pairs : {true, false}) {
        const test::Pairs chosen(pairs);
        compare_with_autograd(shape, at::kBFloat16, 6e-3, 2e-2, documents(shape, chance));
      }
    }
}

TEST(DocumentAttention, IsTheSameForADocumentAlone) {
  constexpr std::int64_t before = 700, length = 600;
  const AttentionShape both{.batch = 1, .seq_len = before + length, .heads = 2, .kv_heads = 2, .head_dim = 8};
  const AttentionShape one{.batch = 1, .seq_len = length, .heads = 2, .kv_heads = 2, .head_dim = 8};
  const at::Tensor begins = at::full({both.seq_len}, 0, at::kInt);
  begins.slice(0, before).fill_(before);
  const at::Tensor qkv = 2 * at::randn({both.seq_len, 48});
  const auto out_of = [](const at::Tensor& all, const AttentionShape& s, const at::Tensor& document_begin) {
    at::Tensor out = at::empty({s.seq_len, 16}, at::kFloat);
    causal_attention(all.slice(1, 0, 16), all.slice(1, 16, 32), all.slice(1, 32), s, out,
                     at::empty({1, 2, s.seq_len}, at::kFloat), document_begin);
    return out;
  };
  const at::Tensor packed = out_of(qkv, both, begins);
  EXPECT_LT(relative_error(packed.slice(0, before), out_of(qkv.slice(0, before), one, {})), 1e-6);
  EXPECT_LT(relative_error(packed.slice(0, 0, before), out_of(qkv, both, {}).slice(0, 0, before)), 1e-6);
}

TEST(CausalAttention, InBf16FollowsFp64WithinRounding) {
  for (const bool pairs : {true, false}) {
    const test::Pairs chosen(pairs);
    for (const auto& shape : odd_shapes) compare_with_autograd(shape, at::kBFloat16, 6e-3, 2e-2);
  }
}

}  // namespace
}  // namespace trireme::kernels
