// SPDX-License-Identifier: Apache-2.0
#include "trireme/kernels/rms_norm.hpp"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/full.h>
#include <ATen/ops/rsqrt.h>
#include <gtest/gtest.h>

#include <limits>

#include "support/tensors.hpp"

namespace trireme::kernels {
namespace {

using test::relative_error;
using test::same_bits;

constexpr double eps = 1e-2;  // large, so that a wrong one shows

struct Norm {
  at::Tensor x, weight, d_y, d_residual, y, rstd, d_x, d_weight;
};

Norm run(std::int64_t rows, std::int64_t width, at::ScalarType type, bool accumulate) {
  Norm n;
  n.x = at::randn({rows, width}).to(type);
  n.weight = (1 + 0.5 * at::randn({width})).to(type);
  n.d_y = at::randn({rows, width}).to(type);
  n.d_residual = at::randn({rows, width}).to(type);
  n.y = at::empty_like(n.x);
  n.rstd = at::empty({rows}, at::kFloat);
  n.d_x = at::empty_like(n.x);
  n.d_weight = at::full({width}, accumulate ? 1.0 : std::numeric_limits<double>::quiet_NaN(), at::kFloat);
  rms_norm(n.x, n.weight, eps, n.y, n.rstd);
  rms_norm_backward(n.d_y, n.x, n.weight, n.rstd, n.d_residual, n.d_x,
                    {.tensor = n.d_weight, .accumulate = accumulate});
  return n;
}

void compare_with_autograd(const Norm& n, bool accumulate, double tolerance) {
  const at::Tensor x = n.x.to(at::kDouble).requires_grad_();
  const at::Tensor weight = n.weight.to(at::kDouble).requires_grad_();
  const at::Tensor y = x * at::rsqrt((x * x).mean(-1, true) + eps) * weight;
  y.backward(n.d_y.to(at::kDouble));
  EXPECT_LT(relative_error(n.y, y), tolerance);
  EXPECT_LT(relative_error(n.d_x, x.grad() + n.d_residual), tolerance);
  EXPECT_LT(relative_error(n.d_weight, weight.grad() + (accumulate ? 1.0 : 0.0)), tolerance);
}

TEST(RmsNorm, AgreesWithAutogradForOddSizes) {
  for (const bool accumulate : {false, true}) {
    for (const auto& [rows, width] : {std::pair{1, 1}, {3, 7}, {33, 65}, {100, 129}}) {
      compare_with_autograd(run(rows, width, at::kFloat, accumulate), accumulate, 2e-6);
    }
  }
}

TEST(RmsNorm, InBf16FollowsFp64WithinRounding) { compare_with_autograd(run(70, 130, at::kBFloat16, true), true, 4e-3); }

TEST(RmsNorm, AgainWritesTheSameBits) {
  for (const auto type : {at::kFloat, at::kBFloat16}) {
    const Norm n = run(37, 65, type, false);
    const at::Tensor again = at::empty_like(n.y);
    rms_norm_again(n.x, n.weight, n.rstd, again);
    EXPECT_TRUE(same_bits(n.y, again));
  }
}

TEST(RmsNorm, BackwardMayOverwriteItsInputsGradient) {
  const Norm n = run(40, 48, at::kFloat, false);
  const at::Tensor in_place = n.d_y.clone();
  rms_norm_backward(in_place, n.x, n.weight, n.rstd, n.d_residual, in_place,
                    {.tensor = n.d_weight, .accumulate = false});
  EXPECT_TRUE(same_bits(n.d_x, in_place));
}

TEST(RmsNorm, GivesTheSameBitsOnOneThread) {
  const Norm n = run(300, 96, at::kFloat, true);
  const at::Tensor d_weight = at::full({96}, 1.0);
  const at::Tensor d_x = at::empty_like(n.x);
  test::on_one_thread([&] {
    rms_norm_backward(n.d_y, n.x, n.weight, n.rstd, n.d_residual, d_x, {.tensor = d_weight, .accumulate = true});
  });
  EXPECT_TRUE(same_bits(n.d_weight, d_weight));
  EXPECT_TRUE(same_bits(n.d_x, d_x));
}

}  // namespace
}  // namespace trireme::kernels
