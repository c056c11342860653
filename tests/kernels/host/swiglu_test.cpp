// SPDX-License-Identifier: Apache-2.0
#include "trireme/kernels/swiglu.hpp"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/silu.h>
#include <gtest/gtest.h>

#include "support/tensors.hpp"

namespace trireme::kernels {
namespace {

using test::relative_error;

void compare_with_autograd(std::int64_t rows, std::int64_t width, at::ScalarType type, double tolerance) {
  const at::Tensor gate_up = (4 * at::randn({rows, 2 * width})).to(type);
  const at::Tensor d_out = at::randn({rows, width}).to(type);
  const at::Tensor out = at::empty_like(d_out);
  swiglu(gate_up, out);
  const at::Tensor d_gate_up = at::empty_like(gate_up);
  const at::Tensor again = d_out.clone();
  swiglu_backward(again, gate_up, d_gate_up, again);

  const at::Tensor reference = gate_up.to(at::kDouble).requires_grad_();
  const at::Tensor expected = at::silu(reference.slice(1, 0, width)) * reference.slice(1, width);
  expected.backward(d_out.to(at::kDouble));
  EXPECT_LT(relative_error(out, expected), tolerance);
  EXPECT_TRUE(test::same_bits(out, again));
  EXPECT_LT(relative_error(d_gate_up, reference.grad()), tolerance);
}

TEST(Swiglu, AgreesWithAutogradForOddSizes) {
  for (const auto& [rows, width] : {std::pair{1, 1}, {5, 17}, {64, 43}})
    compare_with_autograd(rows, width, at::kFloat, 1e-6);
}

TEST(Swiglu, InBf16FollowsFp64WithinRounding) { compare_with_autograd(31, 77, at::kBFloat16, 4e-3); }

TEST(Swiglu, StaysFiniteForGatesFarFromZero) {
  const at::Tensor gate_up = at::empty({1, 4});
  gate_up.copy_(at::randn({1, 4}));
  gate_up[0][0] = -1e4;
  gate_up[0][1] = 1e4;
  const at::Tensor out = at::empty({1, 2});
  swiglu(gate_up, out);
  EXPECT_EQ(out[0][0].item<float>() * 0.0F, 0.0F);
  EXPECT_FLOAT_EQ(out[0][1].item<float>(), 1e4F * gate_up[0][3].item<float>());
}

}  // namespace
}  // namespace trireme::kernels
