// SPDX-License-Identifier: Apache-2.0
// The choice of experts for a token, and their rows, compared with plain loops and libtorch's autograd.
#include "trireme/kernels/experts.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/logsumexp.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/topk.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "support/tensors.hpp"

namespace trireme::kernels::experts_test {
namespace {

using test::relative_error;

model::Experts router(std::int64_t count, std::int64_t k, bool normalized = true) {
  return {.count = count, .per_token = k, .normalized = normalized};
}

/// The k largest logits of each token.
at::Tensor choose_experts(const at::Tensor& logits, std::int64_t k) {
  return kernels::choose_experts(logits, router(logits.size(1), k), {});
}

/// The experts of one token, the best one first: each time the best of those that are left.
std::vector<std::int64_t> slow_choice(const at::Tensor& logits, std::int64_t k) {
  std::vector<std::int64_t> chosen;
  while (static_cast<std::int64_t>(chosen.size()) < k) {
    std::int64_t best = -1;
    for (std::int64_t e = 0; e < logits.size(0); ++e) {
      const bool taken = std::find(chosen.begin(), chosen.end(), e) != chosen.end();
      if (!taken && (best < 0 || logits[e].item<float>() > logits[best].item<float>())) best = e;
    }
    chosen.push_back(best);
  }
  std::sort(chosen.begin(), chosen.end());
  return chosen;
}

TEST(ChooseExperts, TakesTheLargestAndOfEqualOnesTheFirst) {
  for (const std::int64_t count : {1, 2, 5, 64}) {
    // Few values, so that most tokens have ties.
    const at::Tensor logits = at::randint(0, 4, {200, count}).to(at::kFloat);
    for (std::int64_t k = 1; k <= std::min<std::int64_t>(count, 7); ++k) {
      const at::Tensor chosen = choose_experts(logits, k);
      for (std::int64_t t = 0; t < logits.size(0); ++t) {
        const std::vector<std::int64_t> expected = slow_choice(logits[t], k);
        for (std::int64_t j = 0; j < k; ++j)
          ASSERT_EQ(chosen[t][j].item<std::int64_t>(), expected[static_cast<std::size_t>(j)]) << count << " " << k;
      }
    }
  }
}

TEST(ChooseExperts, TakesWhatTopkTakesWhereNothingIsEqual) {
  const at::Tensor logits = at::randn({300, 33});
  const at::Tensor expected = std::get<0>(std::get<1>(at::topk(logits, 6)).sort(1)).to(at::kInt);
  EXPECT_TRUE(at::equal(choose_experts(logits, 6), expected));
}

/// As DeepSeek-V3 chooses: by the sigmoids and their bias, from the groups whose two best are best together.
std::vector<std::int64_t> slow_grouped_choice(const at::Tensor& logits, const model::Experts& of,
                                              const at::Tensor& bias) {
  const at::Tensor preference = logits.to(at::kDouble).sigmoid() + bias.to(at::kDouble);
  const std::int64_t size = of.count / of.groups;
  at::Tensor group_scores = at::zeros({of.groups});
  for (std::int64_t g = 0; g < of.groups; ++g)
    group_scores[g] = std::get<0>(preference.slice(0, g * size, (g + 1) * size).sort(0, true)).slice(0, 0, 2).sum();
  const std::vector<std::int64_t> kept = slow_choice(group_scores, of.groups_kept);
  at::Tensor allowed = preference - 1000;
  for (const std::int64_t g : kept)
    allowed.slice(0, g * size, (g + 1) * size).copy_(preference.slice(0, g * size, (g + 1) * size));
  return slow_choice(allowed, of.per_token);
}

TEST(ChooseExperts, ComparesBiasedScoresWithinTheBestGroups) {
  for (const std::int64_t groups : {1, 2, 4})
    for (std::int64_t kept = 1; kept <= groups; ++kept)
      for (const std::int64_t k : {1, 3}) {
        model::Experts of = router(12, k);
        of.scores = model::RouterScores::sigmoid;
        of.groups = groups;
        of.groups_kept = kept;
        const at::Tensor logits = 2 * at::randn({60, 12}), bias = 0.4 * at::randn({12});
        const at::Tensor chosen = kernels::choose_experts(logits, of, bias);
        for (std::int64_t t = 0; t < logits.size(0); ++t) {
          const std::vector<std::int64_t> expected = slow_grouped_choice(logits[t], of, bias);
          for (std::int64_t j = 0; j < k; ++j)
            ASSERT_EQ(chosen[t][j].item<std::int64_t>(), expected[static_cast<std::size_t>(j)]) << groups << kept << k;
        }
      }
}

TEST(ChooseExperts, EndsWithNumbersThatAreNone) {
  at::Tensor logits = at::randn({3, 5});
  logits[0].fill_(std::numeric_limits<float>::quiet_NaN());
  logits[1][2] = std::numeric_limits<float>::quiet_NaN();
  const at::Tensor chosen = choose_experts(logits, 2);
  EXPECT_TRUE(at::equal(chosen[0], at::tensor({0, 1}, at::kInt)));
  EXPECT_TRUE((chosen[1] != 2).all().item<bool>());
}

/// The weights of the chosen experts, and what the losses add, under autograd.
struct Reference {
  at::Tensor weights, balance, z;
};
Reference reference(const at::Tensor& logits, const at::Tensor& experts, std::int64_t seq_len,
                    const model::Experts& of) {
  const bool softmax = of.scores == model::RouterScores::softmax;
  const at::Tensor scores = softmax ? logits.softmax(-1) : logits.sigmoid(), p = scores / scores.sum(-1, true);
  const at::Tensor chosen = scores.gather(1, experts.to(at::kLong));
  const std::int64_t count = logits.size(1), k = experts.size(1);
  at::Tensor balance = at::zeros({}, at::kDouble);
  for (std::int64_t begin = 0; begin < logits.size(0); begin += seq_len) {
    at::Tensor choices = at::zeros({count}, at::kDouble);
    for (std::int64_t t = begin; t < begin + seq_len; ++t)
      for (std::int64_t j = 0; j < k; ++j) choices[experts[t][j].item<std::int64_t>()] += 1;
    const at::Tensor f = choices * count / static_cast<double>(k * seq_len);
    balance = balance + (f * p.slice(0, begin, begin + seq_len).mean(0)).sum();
  }
  return {.weights = of.scale * (of.normalized ? chosen / chosen.sum(-1, true) : chosen),
          .balance = balance,
          .z = at::logsumexp(logits, 1).pow(2).sum()};
}

TEST(RouterBackward, AgreesWithAutograd) {
  using enum model::RouterScores;
  for (const auto& [normalized, scores] :
       {std::pair{false, softmax}, {true, softmax}, {false, sigmoid}, {true, sigmoid}})
    for (const auto& scales : {RouterScales{}, RouterScales{.balance = 0.3}, RouterScales{.balance = 0.2, .z = 0.01}}) {
      model::Experts of = router(9, 4, normalized);
      of.scores = scores;
      of.scale = 1.7;
      const at::Tensor logits = 2 * at::randn({24, 9}), d_weights = at::randn({24, 4});
      const at::Tensor experts = choose_experts(logits, 4);
      const at::Tensor d_logits = at::full_like(logits, NAN);
      const RouterLosses losses = router_backward(d_weights, logits, experts, {.length = 8}, of, scales, d_logits);
      const at::Tensor x = logits.to(at::kDouble).requires_grad_();
      const Reference expected = reference(x, experts, 8, of);
      EXPECT_LT(relative_error(expert_weights(logits, experts, of), expected.weights), 1e-6);
      ((expected.weights * d_weights).sum() + scales.balance * expected.balance + scales.z * expected.z).backward();
      EXPECT_LT(relative_error(d_logits, x.grad()), 1e-6);
      EXPECT_NEAR(losses.balance, scales.balance * expected.balance.item<double>(), 1e-9);
      EXPECT_NEAR(losses.z, scales.z * expected.z.item<double>(), 1e-9);
    }
}

TEST(RouterBackward, OfPartsOfSequencesIsThatOfTheWhole) {
  // Three sequences of 8 tokens; ranks that have runs of 6 of all 24, whatever sequence they are of.
  const model::Experts of = router(9, 4, true);
  const RouterScales scales{.balance = 0.2, .z = 0.01};
  const at::Tensor logits = 2 * at::randn({24, 9}), d_weights = at::randn({24, 4});
  const at::Tensor experts = choose_experts(logits, 4), whole = at::empty_like(logits);
  const RouterLosses expected = router_backward(d_weights, logits, experts, {.length = 8}, of, scales, whole);
  at::Tensor loads = at::zeros({3, 9});
  for (std::int64_t first = 0; first < 24; first += 6)
    loads += sequence_loads(experts.narrow(0, first, 6), {.length = 8, .first = first}, 3, 9);
  EXPECT_TRUE(at::equal(loads, sequence_loads(experts, {.length = 8}, 3, 9)));
  RouterLosses losses;
  for (std::int64_t first = 0; first < 24; first += 6) {
    const auto part = [&](const at::Tensor& of_all) { return of_all.narrow(0, first, 6); };
    const at::Tensor d_logits = at::empty({6, 9});
    const RouterLosses of_part = router_backward(part(d_weights), part(logits), part(experts),
                                                 {.length = 8, .first = first, .loads = loads}, of, scales, d_logits);
    EXPECT_TRUE(at::equal(d_logits, part(whole)));
    losses.balance += of_part.balance;
    losses.z += of_part.z;
  }
  EXPECT_NEAR(losses.balance, expected.balance, 1e-12);
  EXPECT_NEAR(losses.z, expected.z, 1e-12);
}

TEST(RouterBackward, BalanceIsOneSequenceWithEvenLoadsAtLeastOne) {
  // E sum f P is 1 if both are even, and E / k where all tokens go to the same k experts with all of their weight.
  at::Tensor even = at::zeros({4, 4}), skewed = at::zeros({4, 4});
  for (std::int64_t t = 0; t < 4; ++t) even[t][t] = 1e-3, skewed[t][2] = 100;
  const auto loss = [](const at::Tensor& logits) {
    const at::Tensor d = at::zeros_like(logits);
    return router_backward(at::zeros({4, 1}), logits, choose_experts(logits, 1), {.length = 4}, router(4, 1),
                           {.balance = 1}, d)
        .balance;
  };
  EXPECT_NEAR(loss(even), 1, 1e-3);
  EXPECT_NEAR(loss(skewed), 4, 1e-6);
}

TEST(ExpertRows, AreSortedByExpertAndThenByToken) {
  for (const std::int64_t count : {3, 9}) {
    // Experts 1 and 2 of nine get no tokens.
    at::Tensor experts = choose_experts(at::randn({50, 3}), 2) * (count == 9 ? 4 : 1);
    const ExpertRows rows = expert_rows(experts.contiguous(), count);
    std::int64_t next = 0;
    for (std::int64_t e = 0; e < count; ++e) {
      EXPECT_EQ(rows.begin[static_cast<std::size_t>(e)], next) << e;
      for (std::int64_t t = 0; t < 50; ++t)
        for (std::int64_t j = 0; j < 2; ++j) {
          if (experts[t][j].item<std::int64_t>() != e) continue;
          EXPECT_EQ(rows.choice[next].item<std::int64_t>(), 2 * t + j);
          EXPECT_EQ(rows.place[t][j].item<std::int64_t>(), next++);
        }
    }
    EXPECT_EQ(rows.begin.back(), 100);
    EXPECT_EQ(next, 100);
  }
}

TEST(ExpertRows, AreGatheredWeighedAndSummed) {
  for (const auto type : {at::kFloat, at::kBFloat16}) {
    const at::Tensor experts = choose_experts(at::randn({40, 6}), 3), weights = at::rand({40, 3});
    const ExpertRows rows = expert_rows(experts, 6);
    const at::Tensor x = at::randn({40, 11}).to(type), residual = at::randn({40, 11}).to(type);
    const at::Tensor inputs = gather_rows(x, rows);
    ASSERT_EQ(inputs.size(0), 120);
    for (std::int64_t t = 0; t < 40; ++t)
      for (std::int64_t j = 0; j < 3; ++j) EXPECT_TRUE(at::equal(inputs[rows.place[t][j].item<std::int64_t>()], x[t]));
    const at::Tensor scaled = at::empty_like(inputs);
    scale_rows(inputs, weights, rows, scaled);
    const at::Tensor out = at::empty_like(x);
    sum_rows(scaled, rows, residual, out);
    const double tolerance = type == at::kFloat ? 1e-6 : 1e-2;
    EXPECT_LT(relative_error(out.to(at::kDouble), residual.to(at::kDouble) + x.to(at::kDouble) * weights.sum(1, true)),
              tolerance);
    sum_rows(inputs, rows, {}, out);
    EXPECT_LT(relative_error(out.to(at::kDouble), 3 * x.to(at::kDouble)), tolerance);
    const at::Tensor d = at::randn({120, 11}).to(type), found = weight_gradients(d, inputs, rows);
    for (std::int64_t t = 0; t < 40; ++t)
      for (std::int64_t j = 0; j < 3; ++j) {
        const double expected =
            (d[rows.place[t][j].item<std::int64_t>()].to(at::kDouble) * x[t].to(at::kDouble)).sum().item<double>();
        EXPECT_NEAR(found[t][j].item<double>(), expected, 1e-5 * (1 + std::abs(expected)));
      }
  }
}

}  // namespace
}  // namespace trireme::kernels::experts_test
