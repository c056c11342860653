// SPDX-License-Identifier: Apache-2.0
#include "trireme/kernels/geglu.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/gelu.h>
#include <gtest/gtest.h>

#include "support/tensors.hpp"

namespace trireme::kernels {
namespace {

using test::relative_error;

void compare_geglu_with_autograd(std::int64_t rows, std::int64_t width, at::ScalarType type, double tolerance) {
  const at::Tensor gate_up = (3 * at::randn({rows, 2 * width})).to(type);
  const at::Tensor d_out = at::randn({rows, width}).to(type);
  const at::Tensor out = at::empty_like(d_out);
  geglu_tanh(gate_up, out);
  const at::Tensor d_gate_up = at::empty_like(gate_up);
  const at::Tensor again = d_out.clone();
  geglu_tanh_backward(again, gate_up, d_gate_up, again);

  const at::Tensor reference = gate_up.to(at::kDouble).requires_grad_();
  const at::Tensor expected = at::gelu(reference.slice(1, 0, width), "tanh") * reference.slice(1, width);
  expected.backward(d_out.to(at::kDouble));
  EXPECT_LT(relative_error(out, expected), tolerance);
  EXPECT_TRUE(test::same_bits(out, again));
  EXPECT_LT(relative_error(d_gate_up, reference.grad()), tolerance);
}

TEST(Geglu, AgreesWithAutogradForOddSizes) {
  for (const auto& [rows, width] : {std::pair{1, 1}, {5, 17}, {64, 43}})
    compare_geglu_with_autograd(rows, width, at::kFloat, 1e-6);
}

TEST(Geglu, InBf16FollowsFp64WithinRounding) { compare_geglu_with_autograd(31, 77, at::kBFloat16, 4e-3); }

}  // namespace
}  // namespace trireme::kernels
