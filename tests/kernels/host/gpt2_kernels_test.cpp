// SPDX-License-Identifier: Apache-2.0
// LayerNorm, GELU and biases against libtorch under autograd.
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/full.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/layer_norm.h>
#include <gtest/gtest.h>

#include <limits>

#include "support/tensors.hpp"
#include "trireme/kernels/bias.hpp"
#include "trireme/kernels/gelu.hpp"
#include "trireme/kernels/layer_norm.hpp"

namespace trireme::kernels {
namespace {

using test::relative_error;

at::Tensor leaf(const at::Tensor& t) { return t.to(at::kDouble).requires_grad_(); }
Grad grad(std::int64_t n, bool accumulate) {
  return {at::full({n}, accumulate ? 1.0 : std::numeric_limits<double>::quiet_NaN()), accumulate};
}
at::Tensor added(const Grad& g) { return g.tensor - (g.accumulate ? 1.0 : 0.0); }

class Gpt2Kernels : public testing::TestWithParam<std::tuple<at::ScalarType, bool>> {
 protected:
  [[nodiscard]] at::Tensor random(at::IntArrayRef shape) const { return at::randn(shape).to(type()); }
  [[nodiscard]] at::ScalarType type() const { return std::get<0>(GetParam()); }
  [[nodiscard]] bool accumulate() const { return std::get<1>(GetParam()); }
  [[nodiscard]] double tolerance() const { return type() == at::kFloat ? 1e-6 : 6e-3; }
};

TEST_P(Gpt2Kernels, LayerNormAgreesWithAutograd) {
  const at::Tensor x = random({67, 37}) + 3, weight = random({37}), bias = random({37});
  const at::Tensor d_y = random({67, 37}), d_residual = random({67, 37});
  const at::Tensor y = at::empty_like(x), statistics = at::empty({2, 67}, at::kFloat), again = at::empty_like(x);
  layer_norm(x, weight, bias, 1e-3, y, statistics);
  layer_norm_again(x, weight, bias, statistics, again);
  const Grad d_weight = grad(37, accumulate()), d_bias = grad(37, accumulate());
  const at::Tensor d_x = at::empty_like(x);
  layer_norm_backward(d_y, x, weight, statistics, d_residual, d_x, d_weight, d_bias);

  const at::Tensor x64 = leaf(x), w64 = leaf(weight), b64 = leaf(bias);
  const at::Tensor expected = at::layer_norm(x64, {37}, w64, b64, 1e-3);
  expected.backward(d_y.to(at::kDouble));
  EXPECT_LT(relative_error(y, expected), tolerance());
  EXPECT_TRUE(test::same_bits(again, y));
  EXPECT_LT(relative_error(d_x, x64.grad() + d_residual), tolerance() * 2);
  EXPECT_LT(relative_error(added(d_weight), w64.grad()), tolerance());
  EXPECT_LT(relative_error(added(d_bias), b64.grad()), tolerance());
}

TEST_P(Gpt2Kernels, GeluAgreesWithAutograd) {
  const at::Tensor x = random({13, 41}) * 3, d_out = random({13, 41});
  const at::Tensor out = at::empty_like(x), again = at::empty_like(x), d_x = d_out.clone();
  gelu_tanh(x, out);
  gelu_tanh_backward(d_x, x, d_x, again);
  const at::Tensor x64 = leaf(x);
  const at::Tensor expected = at::gelu(x64, "tanh");
  expected.backward(d_out.to(at::kDouble));
  EXPECT_LT(relative_error(out, expected), tolerance());
  EXPECT_TRUE(test::same_bits(again, out));
  EXPECT_LT(relative_error(d_x, x64.grad()), tolerance());
}

TEST_P(Gpt2Kernels, BiasIsAddedToEveryRowAndItsGradientIsTheirSum) {
  const at::Tensor y = random({131, 29}), bias = random({29});
  const at::Tensor before = y.clone();
  add_bias(y, bias);
  EXPECT_LT(relative_error(y, before.to(at::kDouble) + bias), tolerance());
  const Grad d_bias = grad(29, accumulate());
  bias_gradient(y, d_bias);
  EXPECT_LT(relative_error(added(d_bias), y.to(at::kDouble).sum(0)), 1e-6);
}

INSTANTIATE_TEST_SUITE_P(, Gpt2Kernels, testing::Combine(testing::Values(at::kFloat, at::kBFloat16), testing::Bool()));

}  // namespace
}  // namespace trireme::kernels
