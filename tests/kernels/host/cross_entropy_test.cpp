// SPDX-License-Identifier: Apache-2.0
#include "trireme/kernels/cross_entropy.hpp"

#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/logsumexp.h>
#include <ATen/ops/randint.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "support/tensors.hpp"
#include "trireme/base/error.hpp"

namespace trireme::kernels {
namespace {

at::Tensor targets_with_ignored(std::int64_t rows, std::int64_t vocab) {
  const at::Tensor targets = at::randint(0, vocab, {rows}, at::kInt);
  for (std::int64_t n = 0; n < rows; n += 3) targets[n] = -1;
  return targets;
}

void compare_with_autograd(std::int64_t rows, std::int64_t vocab, at::ScalarType type, double z_loss,
                           double loss_tolerance, double tolerance) {
  const at::Tensor logits =
      (2 * at::randn({rows, vocab}) + 300).to(type);  // exp(300) overflows: only a stable log-sum-exp survives
  const at::Tensor targets = targets_with_ignored(rows, vocab);
  const at::Tensor reference = logits.to(at::kDouble).requires_grad_();
  const at::Tensor sum = at::cross_entropy_loss(reference, targets.to(at::kLong), {}, /*reduction=sum*/ 2, -1);
  const at::Tensor z_sum = z_loss * (at::logsumexp(reference, 1).pow(2) * (targets >= 0)).sum();
  (0.125 * (sum + z_sum)).backward();

  const double expected = sum.item<double>(), expected_z = z_sum.item<double>();
  EXPECT_NEAR(cross_entropy(logits, targets), expected, loss_tolerance * std::max(1.0, expected));
  const LossSums sums = cross_entropy_backward(logits, targets, 0.125, z_loss);
  EXPECT_NEAR(sums.cross_entropy, expected, loss_tolerance * std::max(1.0, expected));
  EXPECT_NEAR(sums.z_loss, expected_z, loss_tolerance * std::max(1.0, expected_z));
  EXPECT_LT(test::relative_error(logits, reference.grad()), tolerance);
  EXPECT_EQ(logits[0].abs().max().item<float>(), 0.0F);
}

TEST(CrossEntropy, AgreesWithLibtorchForOddSizes) {
  for (const auto& [rows, vocab] : {std::pair{2, 3}, {7, 33}, {50, 1001}})
    for (const double z_loss : {0.0, 1e-4, 0.1}) compare_with_autograd(rows, vocab, at::kFloat, z_loss, 1e-6, 3e-6);
}

TEST(CrossEntropy, InBf16FollowsFp64WithinRounding) {
  for (const double z_loss : {0.0, 1e-2}) compare_with_autograd(20, 501, at::kBFloat16, z_loss, 1e-6, 4e-3);
}

TEST(CrossEntropy, HasTheGradientOfItsLosses) {
  constexpr double step = 0.03, z_loss = 0.1;
  const at::Tensor logits = at::randn({7, 33}) + 2, direction = at::randn({7, 33});
  const at::Tensor targets = targets_with_ignored(7, 33);
  const auto loss = [&](double along) {
    const LossSums sums = cross_entropy_backward(logits + along * direction, targets, 1.0, z_loss);
    return sums.cross_entropy + sums.z_loss;
  };
  const at::Tensor gradient = logits.clone();
  (void)cross_entropy_backward(gradient, targets, 1.0, z_loss);
  const double slope = (gradient * direction).sum().item<double>();
  EXPECT_NEAR((loss(step) - loss(-step)) / (2 * step), slope, 2e-3 * gradient.norm().item<double>());
}

TEST(CrossEntropy, WithoutCountedTargetsIsZero) {
  const at::Tensor logits = at::randn({3, 10});
  const at::Tensor targets = at::randint(0, 1, {3}, at::kInt) - 1;
  EXPECT_EQ(cross_entropy(logits, targets), 0.0);
  EXPECT_EQ(cross_entropy_backward(logits, targets, 1.0, 0.1), LossSums{});
  EXPECT_EQ(logits.abs().max().item<float>(), 0.0F);
}

TEST(CrossEntropy, ShowsNonFiniteLogitsInTheLoss) {
  const at::Tensor logits = at::randn({2, 40});
  const at::Tensor targets = at::randint(0, 40, {2}, at::kInt);
  for (const double bad : {NAN, INFINITY}) {
    logits[1][35] = bad;
    EXPECT_FALSE(std::isfinite(cross_entropy(logits, targets)));
    EXPECT_FALSE(std::isfinite(cross_entropy_backward(logits.clone(), targets, 1.0, 0).cross_entropy));
  }
}

TEST(CrossEntropy, RefusesATargetOutsideTheVocabulary) {
  const at::Tensor targets = at::randint(0, 1, {1}, at::kInt) + 10;
  EXPECT_THROW((void)cross_entropy(at::randn({1, 10}), targets), BugError);
  EXPECT_THROW((void)cross_entropy_backward(at::randn({1, 10}), targets - 12, 1.0, 0), BugError);
}

TEST(CrossEntropy, GivesTheSameBitsOnOneThread) {
  const at::Tensor logits = at::randn({65, 300});
  const at::Tensor one = logits.clone();
  const at::Tensor targets = targets_with_ignored(65, 300);
  const LossSums loss = cross_entropy_backward(logits, targets, 0.5, 0.1);
  LossSums loss_one;
  test::on_one_thread([&] { loss_one = cross_entropy_backward(one, targets, 0.5, 0.1); });
  EXPECT_EQ(loss, loss_one);
  EXPECT_TRUE(test::same_bits(logits, one));
}

}  // namespace
}  // namespace trireme::kernels
