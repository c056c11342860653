// SPDX-License-Identifier: Apache-2.0
// The loss on a device against that of the host.
#include <ATen/ops/full.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>

#include <limits>

#include "kernels/cuda.hpp"
#include "support/gpu.hpp"
#include "support/tensors.hpp"
#include "trireme/kernels/cross_entropy.hpp"
#include "trireme/kernels/vocabulary.hpp"

namespace trireme::kernels {
namespace {

using test::relative_error;
using test::to_kernels;

at::Tensor some_targets(std::int64_t rows, std::int64_t vocab) {
  at::Tensor targets = at::randint(0, vocab, {rows}, at::kInt);
  for (std::int64_t n = 1; n < rows; n += 3) targets[n] = -1;
  return targets;
}

at::Tensor two_numbers(double value) { return to_kernels(at::full({2}, value, at::kDouble)); }

/// Expects that the loss sums, added to `begin`, equal the host's.
void expect_added(const at::Tensor& loss, double begin, const LossSums& expected) {
  const at::Tensor sums = loss.cpu();
  EXPECT_NEAR(sums[0].item<double>() - begin, expected.cross_entropy, 1e-5 * (1 + expected.cross_entropy));
  EXPECT_NEAR(sums[1].item<double>() - begin, expected.z_loss, 1e-5 * (1 + expected.z_loss));
}

class LossOnDevice : public test::GpuTest {};

void follow_the_host() {
  for (const auto type : {at::kFloat, at::kBFloat16})
    for (const auto& [rows, vocab] : {std::pair<std::int64_t, std::int64_t>{1, 1},
                                      {7, 5},
                                      {6, 64},
                                      {5, 1001},
                                      {19, 608},
                                      {18, 9000},
                                      {5, 33000},
                                      {3, 24576},
                                      {3, 70000}}) {
      const at::Tensor logits = (4 * at::randn({rows, vocab}) + 30).to(type), targets = some_targets(rows, vocab);
      for (const double z_loss : {0.0, 1e-2}) {
        const at::Tensor host = logits.clone(), device = to_kernels(logits), t = to_kernels(targets);
        const at::Tensor loss = two_numbers(100), loss_too = two_numbers(100);
        const LossSums expected = cross_entropy_backward(host, targets, 0.125, z_loss);
        cuda::cross_entropy(device, t, loss);
        EXPECT_TRUE(test::same_bits(device.cpu(), logits));
        cuda::cross_entropy_backward(device, t, 0.125, z_loss, loss_too);
        expect_added(loss, 100, {.cross_entropy = expected.cross_entropy});
        expect_added(loss_too, 100, expected);
        EXPECT_LT((device.cpu() - host).abs().max().item<double>(), type == at::kFloat ? 1e-6 : 1e-3)
            << rows << " x " << vocab << " " << type << " " << z_loss;
      }
    }
}

TEST_F(LossOnDevice, CrossEntropyFollowsTheHost) { follow_the_host(); }

TEST_F(LossOnDevice, CrossEntropyFollowsTheHostWheneverCopiesAreMade) {
  if (test::on_gpu()) GTEST_SKIP() << "a GPU copies when it likes";
  test::make_copies_at_once(true);
  follow_the_host();
  test::make_copies_at_once(false);
}

TEST_F(LossOnDevice, IsNotFiniteWhereALogitIsNot) {
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    at::Tensor logits = at::randn({2, 70});
    logits[1][69] = bad;
    const at::Tensor loss = two_numbers(0);
    cuda::cross_entropy(to_kernels(logits), to_kernels(at::zeros({2}, at::kInt)), loss);
    EXPECT_FALSE(std::isfinite(loss.cpu()[0].item<double>()));
    for (const auto type : {at::kFloat, at::kBFloat16}) {  // whole packs
      at::Tensor packs = at::randn({2, 72}).to(type);
      packs[1][69] = bad;
      const at::Tensor loss_too = two_numbers(0);
      cuda::cross_entropy_backward(to_kernels(packs), to_kernels(at::zeros({2}, at::kInt)), 1.0, 0.0, loss_too);
      EXPECT_FALSE(std::isfinite(loss_too.cpu()[0].item<double>())) << type;
    }
  }
}

TEST_F(LossOnDevice, AnImpossibleTokenTakesNothing) {
  for (const auto type : {at::kFloat, at::kBFloat16}) {
    at::Tensor logits = at::randn({2, 72}).to(type);
    logits[1][69] = -std::numeric_limits<float>::infinity();
    const at::Tensor device = to_kernels(logits), loss = two_numbers(0);
    cuda::cross_entropy_backward(device, to_kernels(at::zeros({2}, at::kInt)), 1.0, 0.0, loss);
    EXPECT_TRUE(std::isfinite(loss.cpu()[0].item<double>()));
    EXPECT_EQ(device.cpu()[1][69].item<double>(), 0.0);
  }
}

TEST_F(LossOnDevice, PartsOfTheVocabularyFollowTheHost) {
  constexpr std::int64_t rows = 13, vocab = 150;
  for (const auto type : {at::kFloat, at::kBFloat16}) {
    const at::Tensor logits = (3 * at::randn({rows, vocab})).to(type), targets = some_targets(rows, vocab);
    const at::Tensor t = to_kernels(targets);
    const std::vector<std::int64_t> cuts{0, 64, 71, vocab};
    std::vector<at::Tensor> parts, statistics;
    for (std::size_t r = 0; r + 1 < cuts.size(); ++r) {
      parts.push_back(to_kernels(logits.slice(1, cuts[r], cuts[r + 1]).contiguous()));
      statistics.push_back(to_kernels(at::full({rows, 3}, NAN)));
      cuda::vocabulary_statistics(parts[r], t, cuts[r], statistics[r]);
    }
    for (const double z_loss : {0.0, 1e-2}) {
      const at::Tensor softmax = to_kernels(at::full({rows, 2}, NAN)), loss = two_numbers(5);
      cuda::combine_statistics(to_kernels(at::stack(statistics)), t, softmax, z_loss, loss);
      const at::Tensor whole = logits.clone();
      expect_added(loss, 5, cross_entropy_backward(whole, targets, 0.25, z_loss));
      for (std::size_t r = 0; r < parts.size(); ++r) {
        const at::Tensor part = to_kernels(parts[r].cpu());
        cuda::cross_entropy_gradient_part(part, t, cuts[r], softmax, 0.25, z_loss);
        EXPECT_LT((part.cpu() - whole.slice(1, cuts[r], cuts[r + 1])).abs().max().item<double>(),
                  type == at::kFloat ? 1e-6 : 2e-3);
      }
    }
  }
}

}  // namespace
}  // namespace trireme::kernels
