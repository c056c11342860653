// SPDX-License-Identifier: Apache-2.0
// Attention of the two runs of queries that a context rank has, against attention of the whole sequence.
#include <ATen/ops/empty.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros_like.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "support/tensors.hpp"
#include "trireme/kernels/attention.hpp"
#include "trireme/model/context.hpp"

namespace trireme::kernels::attention_runs_test {
namespace {

using test::relative_error;

/// The rows of [B*T, ..] that a rank has.
at::Tensor rows_of(const at::Tensor& whole, std::int64_t batch, const model::ContextPart& part) {
  const std::int64_t seq_len = whole.size(0) / batch, mine = seq_len / part.ranks;
  at::Tensor rows = at::empty({batch * mine}, at::kLong);
  for (std::int64_t i = 0; i < rows.size(0); ++i)
    rows.mutable_data_ptr<std::int64_t>()[i] = i / mine * seq_len + part.position(i % mine, seq_len);
  return whole.index_select(0, rows);
}

struct Values {
  at::Tensor q, k, v, d_out, document_begin;
};

/// Numbers of `type`, in fp32.
Values values_of(const AttentionShape& s, bool documents, at::ScalarType type) {
  const std::int64_t tokens = s.batch * s.seq_len;
  const auto random = [&](double spread, std::int64_t heads) {
    return (spread * at::randn({tokens, heads * s.head_dim})).to(type).to(at::kFloat);
  };
  Values of{.q = random(2, s.heads),
            .k = random(2, s.kv_heads),
            .v = random(1, s.kv_heads),
            .d_out = random(1, s.heads),
            .document_begin = {}};
  if (!documents) return of;
  of.document_begin = at::empty({tokens}, at::kInt);
  auto* begins = of.document_begin.mutable_data_ptr<std::int32_t>();
  for (std::int64_t i = 0; i < tokens; ++i) {
    const std::int64_t t = i % s.seq_len;
    begins[i] = t > 0 && t % 11 != 5 && t % 29 != 28 ? begins[i - 1] : static_cast<std::int32_t>(t);
  }
  return of;
}

struct Computed {
  at::Tensor out, logsumexp, d_q, d_k, d_v;
};

Computed compute(const AttentionShape& s, const Values& of) {
  Computed c{.out = at::empty_like(of.q),
             .logsumexp = at::empty({s.batch, s.heads, s.queries()}, at::kFloat),
             .d_q = at::empty_like(of.q),
             .d_k = at::empty_like(of.k),
             .d_v = at::empty_like(of.v)};
  causal_attention(of.q, of.k, of.v, s, c.out, c.logsumexp, of.document_begin);
  causal_attention_backward(of.d_out, of.q, of.k, of.v, c.out, c.logsumexp, s, c.d_q, c.d_k, c.d_v, of.document_begin);
  return c;
}

/// Runs in `type` against the whole sequence in fp32.
void compare_runs(at::ScalarType type, double tolerance, double gradient_tolerance) {
  for (const int ranks : {1, 2, 3, 4})
    for (const std::int64_t run : {1, 67})
      for (const std::int64_t window : {0, 70})
        for (const bool documents : {false, true}) {
          AttentionShape s{.batch = 2,
                           .seq_len = 2 * ranks * run,
                           .heads = 4,
                           .kv_heads = 2,
                           .head_dim = 6,
                           .window = window < 2 * ranks * run ? window : 0,
                           .softcap = window > 0 ? 2.0 : 0.0};
          const std::string what = std::to_string(ranks) + " ranks, runs of " + std::to_string(run) + ", window " +
                                   std::to_string(window) + (documents ? ", documents" : "");
          const Values whole = values_of(s, documents, type);
          const Computed expected = compute(s, whole);
          at::Tensor d_k = at::zeros_like(whole.k), d_v = at::zeros_like(whole.v);
          for (int rank = 0; rank < ranks; ++rank) {
            const model::ContextPart part{.rank = rank, .ranks = ranks};
            const auto mine = [&](const at::Tensor& of) { return rows_of(of, s.batch, part); };
            const auto typed = [&](const at::Tensor& of) { return of.to(type); };
            s.run = run;
            s.run_begin = {part.first_run(s.seq_len), part.second_run(s.seq_len)};
            const Values of{.q = typed(mine(whole.q)),
                            .k = typed(whole.k),
                            .v = typed(whole.v),
                            .d_out = typed(mine(whole.d_out)),
                            .document_begin = documents ? mine(whole.document_begin) : at::Tensor()};
            const Computed found = compute(s, of);
            EXPECT_LT(relative_error(found.out, mine(expected.out)), tolerance) << what;
            // A token that sees itself alone has no gradient, and a rank may have no other: nothing to relate to.
            if (run > 1) {
              EXPECT_LT(relative_error(found.d_q, mine(expected.d_q)), gradient_tolerance) << what;
            }
            const at::Tensor by_token = expected.logsumexp.transpose(1, 2).reshape({-1, s.heads});
            EXPECT_LT(relative_error(found.logsumexp.transpose(1, 2).reshape({-1, s.heads}), mine(by_token)), tolerance)
                << what;
            d_k += found.d_k;
            d_v += found.d_v;
          }
          EXPECT_LT(relative_error(d_k, expected.d_k), gradient_tolerance) << what;
          EXPECT_LT(relative_error(d_v, expected.d_v), gradient_tolerance) << what;
        }
}

TEST(AttentionOfRuns, IsThatOfTheWholeSequence) { compare_runs(at::kFloat, 1e-6, 3e-6); }
TEST(AttentionOfRuns, InBf16IsThatOfTheWholeSequenceWithinRounding) { compare_runs(at::kBFloat16, 6e-3, 2e-2); }

}  // namespace
}  // namespace trireme::kernels::attention_runs_test
