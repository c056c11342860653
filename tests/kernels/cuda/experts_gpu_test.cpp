// SPDX-License-Identifier: Apache-2.0
// Routers, rows of experts and their products on a device against those of the host.
#include <ATen/TensorOperators.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <limits>
#include <numeric>
#include <tuple>
#include <vector>

#include "kernels/cuda_experts.hpp"
#include "support/gpu.hpp"
#include "support/tensors.hpp"

namespace trireme::kernels::experts_gpu_test {
namespace {

using test::relative_error;
using test::to_kernels;
using enum model::RouterScores;

/// Sizes at which a warp or a block has too few, enough and too many, in every kind of router.
std::vector<model::Experts> routers() {
  std::vector<model::Experts> all;
  for (const auto& [count, per_token] : {std::pair{1, 1}, {5, 2}, {32, 4}, {64, 8}, {70, 7}, {256, 8}, {1024, 3}})
    for (const auto scores : {softmax, sigmoid})
      for (const bool normalized : {false, true})
        all.push_back(
            {.count = count, .per_token = per_token, .normalized = normalized, .scores = scores, .scale = 1.7});
  for (const auto& [count, groups, kept] : {std::tuple{6, 3, 2}, {64, 8, 4}, {128, 2, 1}, {96, 48, 7}})
    for (const auto scores : {softmax, sigmoid})
      all.push_back({.count = count, .per_token = 4, .scores = scores, .groups = groups, .groups_kept = kept});
  return all;
}

/// On the device as it came from the host: undefined stays so.
at::Tensor there(const at::Tensor& t) { return t.defined() ? to_kernels(t) : t; }

class ExpertsOnDevice : public test::GpuTest {};

TEST_F(ExpertsOnDevice, ChooseWhatTheHostChooses) {
  for (const model::Experts& router : routers())
    for (const bool biased : {false, true})
      for (const bool ties : {false, true}) {
        const at::Tensor logits =
            ties ? at::randint(0, 3, {41, router.count}).to(at::kFloat) : 2 * at::randn({41, router.count});
        const at::Tensor bias =
            biased ? (ties ? at::zeros({router.count}) : 0.4 * at::randn({router.count})) : at::Tensor();
        EXPECT_TRUE(at::equal(cuda::choose_experts(there(logits), router, there(bias)).cpu(),
                              choose_experts(logits, router, bias)))
            << router.count << " experts, " << router.groups << " groups, bias " << biased << ", ties " << ties;
      }
}

TEST_F(ExpertsOnDevice, ChooseAmongNumbersThatAreNone) {
  at::Tensor logits = at::randn({3, 40});
  logits[0].fill_(std::numeric_limits<float>::quiet_NaN());
  logits[1][2] = std::numeric_limits<float>::quiet_NaN();
  logits[2].slice(0, 0, 38).fill_(-std::numeric_limits<float>::infinity());
  const model::Experts router{.count = 40, .per_token = 3};
  EXPECT_TRUE(at::equal(cuda::choose_experts(there(logits), router, {}).cpu(), choose_experts(logits, router, {})));
}

TEST_F(ExpertsOnDevice, WeighAndGoBackwardAsTheHostDoes) {
  for (const model::Experts& router : routers())
    for (const RouterScales scales : {RouterScales{}, RouterScales{.balance = 0.3}, RouterScales{.z = 0.02},
                                      RouterScales{.balance = 0.2, .z = 0.01}}) {
      const at::Tensor logits = 2 * at::randn({36, router.count}), d_weights = at::randn({36, router.per_token});
      const at::Tensor experts = choose_experts(logits, router, {}), d_logits = at::full_like(logits, NAN);
      const RouterLosses losses = router_backward(d_weights, logits, experts, {.length = 12}, router, scales, d_logits);
      const at::Tensor logits_there = there(logits), experts_there = there(experts);
      EXPECT_LT(relative_error(cuda::expert_weights(logits_there, experts_there, router).cpu(),
                               expert_weights(logits, experts, router)),
                1e-6);
      const at::Tensor d_there = there(at::full_like(logits, NAN));
      const at::Tensor sums =
          cuda::router_backward(there(d_weights), logits_there, experts_there, {.length = 12}, router, scales, d_there);
      // The weight of one expert is constant if it is normalized: what is left is rounding.
      const double size = d_logits.abs().max().item<double>();
      EXPECT_LT((d_there.cpu() - d_logits).abs().max().item<double>(), 1e-6 * size + 1e-12) << router.count;
      ASSERT_EQ(sums.defined(), scales.balance != 0 || scales.z != 0);
      if (!sums.defined()) continue;
      EXPECT_NEAR(sums.cpu()[0].item<double>(), losses.balance, 1e-9 * (1 + losses.balance));
      EXPECT_NEAR(sums.cpu()[1].item<double>(), losses.z, 1e-9 * (1 + losses.z));
    }
}

TEST_F(ExpertsOnDevice, WeighPartsOfSequencesAsTheHostDoes) {
  // Runs of 30 tokens of three sequences of 50: they begin and end anywhere in them.
  const RouterScales scales{.balance = 0.2, .z = 0.01};
  for (const model::Experts& router : routers()) {
    const at::Tensor logits = 2 * at::randn({150, router.count}), d_weights = at::randn({150, router.per_token});
    const at::Tensor experts = choose_experts(logits, router, {});
    const at::Tensor loads = sequence_loads(experts, {.length = 50}, 3, router.count);
    at::Tensor summed = at::zeros_like(loads);
    for (std::int64_t first = 0; first < 150; first += 30) {
      const auto part = [&](const at::Tensor& of_all) { return of_all.narrow(0, first, 30); };
      const at::Tensor mine = there(part(experts));
      summed += cuda::sequence_loads(mine, {.length = 50, .first = first}, 3, router.count).cpu();
      const at::Tensor d_logits = at::full_like(part(logits), NAN), d_there = there(d_logits);
      const RouterLosses losses =
          router_backward(part(d_weights), part(logits), part(experts), {.length = 50, .first = first, .loads = loads},
                          router, scales, d_logits);
      const at::Tensor sums =
          cuda::router_backward(there(part(d_weights)), there(part(logits)), mine,
                                {.length = 50, .first = first, .loads = there(loads)}, router, scales, d_there)
              .cpu();
      const double size = d_logits.abs().max().item<double>();
      EXPECT_LT((d_there.cpu() - d_logits).abs().max().item<double>(), 1e-6 * size + 1e-12) << router.count;
      EXPECT_NEAR(sums[0].item<double>(), losses.balance, 1e-9 * (1 + losses.balance));
      EXPECT_NEAR(sums[1].item<double>(), losses.z, 1e-9 * (1 + losses.z));
    }
    EXPECT_TRUE(at::equal(summed, loads)) << router.count;
  }
}

/// Choices of few and of many chunks, of all experts and of one, and experts without tokens.
struct Choice {
  std::int64_t tokens, count, per_token;
  bool one_expert = false;
  [[nodiscard]] at::Tensor experts() const {
    if (one_expert) return at::full({tokens, per_token}, count / 2, at::kInt);
    return std::get<0>(at::randint(0, count, {tokens, per_token}, at::kInt).sort(1)).contiguous();
  }
};
const std::vector<Choice> choices{{1, 1, 1}, {7, 5, 2}, {300, 40, 8}, {1024, 3, 1}, {1025, 1000, 3}, {700, 9, 3, true}};

TEST_F(ExpertsOnDevice, SortRowsAsTheHostDoes) {
  for (const Choice& c : choices) {
    const at::Tensor experts = c.experts();
    const ExpertRows expected = expert_rows(experts, c.count), rows = cuda::expert_rows(there(experts), c.count);
    const at::Tensor begin = rows.begin_on_device.cpu().to(at::kLong);
    EXPECT_EQ(std::vector<std::int64_t>(begin.const_data_ptr<std::int64_t>(),
                                        begin.const_data_ptr<std::int64_t>() + begin.numel()),
              expected.begin);
    EXPECT_TRUE(at::equal(rows.choice.cpu(), expected.choice)) << c.tokens;
    EXPECT_TRUE(at::equal(rows.place.cpu(), expected.place)) << c.tokens;
  }
}

TEST_F(ExpertsOnDevice, GatherWeighAndSumRowsAsTheHostDoes) {
  for (const auto type : {at::kFloat, at::kBFloat16})
    for (const std::int64_t width : {1, 7, 64, 1000, 2056})
      for (const Choice& c : {Choice{9, 5, 2}, Choice{130, 12, 4}}) {
        const at::Tensor experts = c.experts(), weights = at::rand({c.tokens, c.per_token});
        const ExpertRows here = expert_rows(experts, c.count), rows = cuda::expert_rows(there(experts), c.count);
        const at::Tensor x = at::randn({c.tokens, width}).to(type), residual = at::randn({c.tokens, width}).to(type);
        const at::Tensor inputs = gather_rows(x, here), gathered = there(at::full_like(inputs, NAN));
        cuda::gather_rows(there(x), rows, gathered);
        EXPECT_TRUE(at::equal(gathered.cpu(), inputs));

        const double tolerance = type == at::kFloat ? 1e-6 : 4e-3;
        const at::Tensor scaled = at::empty_like(inputs), scaled_there = there(inputs);
        scale_rows(inputs, weights, here, scaled);
        cuda::scale_rows(scaled_there, there(weights), rows, scaled_there);  // in place
        EXPECT_TRUE(test::same_bits(scaled_there.cpu(), scaled));
        for (const at::Tensor& beside : {residual, at::Tensor()}) {
          const at::Tensor sum = at::empty_like(x), sum_there = there(at::full_like(x, NAN));
          sum_rows(scaled, here, beside, sum);
          cuda::sum_rows(scaled_there, rows, there(beside), sum_there);
          EXPECT_TRUE(test::same_bits(sum_there.cpu(), sum)) << "in the order of the experts, rounded once";
        }
        const at::Tensor d = at::randn(inputs.sizes()).to(type);
        const at::Tensor gradients = there(at::full({c.tokens, c.per_token}, NAN));
        cuda::weight_gradients(there(d), gathered, rows, gradients);
        EXPECT_LT(relative_error(gradients.cpu(), weight_gradients(d, inputs, here)), tolerance);
      }
}

TEST_F(ExpertsOnDevice, MoveSegmentsSomeOfWhichAreEmpty) {
  const std::vector<std::int64_t> lengths{3, 0, 5, 1, 0, 0, 40, 2, 0}, order{6, 1, 0, 8, 3, 2, 4, 7, 5};
  std::vector<std::int64_t> from_begin(lengths.size()), from(lengths.size()), to(lengths.size());
  std::exclusive_scan(lengths.begin(), lengths.end(), from_begin.begin(), std::int64_t{0});
  std::int64_t next = 0;
  for (std::size_t s = 0; s < order.size(); ++s) {
    const auto moved = static_cast<std::size_t>(order[s]);
    from[s] = from_begin[moved];
    to[s] = next;
    next += lengths[moved];
  }
  for (const auto type : {at::kFloat, at::kBFloat16})
    for (const std::int64_t width : {1, 5, 64}) {
      const at::Tensor x = at::randn({next, width}).to(type), out = there(at::full_like(x, NAN));
      cuda::move_segments(there(x), from, to, out);
      const at::Tensor moved = out.cpu();
      for (std::size_t s = 0; s < order.size(); ++s) {
        const std::int64_t length = lengths[static_cast<std::size_t>(order[s])];
        EXPECT_TRUE(at::equal(moved.narrow(0, to[s], length), x.narrow(0, from[s], length))) << s;
      }
    }
}

TEST_F(ExpertsOnDevice, MultiplyRowsInGroups) {
  if (!cuda::multiplies_in_groups()) GTEST_SKIP() << "no grouped products on this GPU";
  const std::vector<std::int64_t> begin{0, 0, 9, 10, 10, 42};  // the first and the fourth group have no rows
  for (const bool transposed : {false, true}) {
    const at::Tensor x = at::randn({42, 24}).to(at::kBFloat16);
    const at::Tensor stored =
        at::randn(transposed ? at::IntArrayRef{5, 40, 24} : at::IntArrayRef{5, 24, 40}).to(at::kBFloat16);
    const auto seen = [&](const at::Tensor& m) { return transposed ? m.transpose(1, 2) : m; };
    const at::Tensor y = cuda::grouped_product(there(x), seen(there(stored)), begin).cpu();
    ASSERT_EQ(y.sizes(), (at::IntArrayRef{42, 40}));
    for (std::int64_t e = 0; e < 5; ++e) {
      const auto first = begin[static_cast<std::size_t>(e)], last = begin[static_cast<std::size_t>(e) + 1];
      if (first == last) continue;
      EXPECT_LT(relative_error(y.slice(0, first, last),
                               at::mm(x.slice(0, first, last).to(at::kFloat), seen(stored)[e].to(at::kFloat))),
                8e-3);
    }
  }
}

}  // namespace
}  // namespace trireme::kernels::experts_gpu_test
