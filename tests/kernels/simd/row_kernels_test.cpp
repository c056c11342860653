// SPDX-License-Identifier: Apache-2.0
#include "kernels/simd/row_kernels.hpp"

#include <ATen/ops/empty.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/rand_like.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "support/tensors.hpp"

namespace trireme::kernels {
namespace {

using test::relative_error;

/// The versions that run on this CPU.
struct Version {
  std::string name;
  const RowKernels* kernels;
};
std::vector<Version> versions() {
  std::vector<Version> result{{"portable", &portable_row_kernels}};
  if (&row_kernels != &portable_row_kernels) result.push_back({"avx512", &avx512_row_kernels});
  if (&row_kernels == &avx512_bf16_row_kernels) result.push_back({"avx512_bf16", &avx512_bf16_row_kernels});
  return result;
}

const std::int64_t lengths[] = {1, 7, 8, 15, 16, 17, 31, 32, 40, 63, 64, 100, 1001};

template <class T = float>
T* data(const at::Tensor& t) {
  return t.mutable_data_ptr<T>();
}

TEST(RowKernels, SoftmaxFindsMaximumAndSum) {
  for (const auto& [name, k] : versions()) {
    for (const auto n : lengths) {
      const at::Tensor row = 4 * at::randn({n}) - 500;
      const at::Tensor halves = row.to(at::kBFloat16);
      const Softmax fp32 = k->softmax_fp32(data(row), n);
      const Softmax bf16 = k->softmax_bf16(data<c10::BFloat16>(halves), n);
      EXPECT_EQ(fp32.top, row.max().item<float>()) << name << n;
      EXPECT_EQ(k->maximum(data(row), n), fp32.top) << name << n;
      EXPECT_EQ(bf16.top, halves.to(at::kFloat).max().item<float>()) << name << n;
      const auto sum_of = [](const at::Tensor& x) {
        return (x.to(at::kDouble) - x.max().item<double>()).exp().sum().item<double>();
      };
      EXPECT_NEAR(fp32.sum / sum_of(row), 1.0, 1e-6) << name << n;
      EXPECT_NEAR(bf16.sum / sum_of(halves), 1.0, 1e-6) << name << n;
    }
  }
}

TEST(RowKernels, SoftcapsFollowFp64NearZeroAndFarFromIt) {
  constexpr double scale = 0.3, cap = 5;
  for (const auto& [name, k] : versions()) {
    for (const auto n : lengths) {
      for (const double spread : {1e-3, 10.0, 1e3}) {
        const at::Tensor raw = spread * at::randn({n}), lse = at::randn({n}) + 9, delta = at::randn({n});
        const at::Tensor d = at::randn({n}), tanh = (raw.to(at::kDouble) * (scale / cap)).tanh();
        const at::Tensor capped = raw.clone(), p = raw.clone(), d_s = d.clone();
        k->softcap(data(capped), n, scale, cap);
        EXPECT_LT(relative_error(capped, cap * tanh), 3e-7) << name << n;
        k->capped_probabilities(data(p), data(d_s), data(lse), data(delta), scale, cap, n);
        const at::Tensor expected = (cap * tanh - lse).exp();
        EXPECT_LT(relative_error(p, expected), 3e-6) << name << n;
        if (spread > 100) continue;  // 1 - tanh^2 is rounding there, in any fp32
        EXPECT_LT(relative_error(d_s, expected * (d - delta) * (1 - tanh * tanh) * scale), 1e-5) << name << n << spread;
      }
    }
  }
}

TEST(RowKernels, ExponentialsReplaceTheRowAndAddUp) {
  for (const auto& [name, k] : versions()) {
    for (const auto n : lengths) {
      const at::Tensor row = 10 * at::randn({n + 1});
      const float after = row[n].item<float>();
      const at::Tensor expected = (0.25 * (row.slice(0, 0, n).to(at::kDouble) - 40)).exp();
      const float sum = k->exponentials(data(row), n, 0.25F, 40.0F);
      EXPECT_LT(relative_error(row.slice(0, 0, n), expected), 1e-6) << name << n;
      EXPECT_NEAR(sum / expected.sum().item<double>(), 1.0, 1e-6) << name << n;
      EXPECT_EQ(row[n].item<float>(), after) << name << n;
    }
  }
}

TEST(RowKernels, ProbabilitiesFollowTheFormula) {
  for (const auto& [name, k] : versions()) {
    for (const auto n : lengths) {
      const at::Tensor p = at::randn({n}), d = at::randn({n}), lse = 3 + at::rand_like(p), delta = at::randn({n});
      const at::Tensor expected_p = (0.5 * p.to(at::kDouble) - lse).exp();
      const at::Tensor expected_d = expected_p * (d.to(at::kDouble) - delta) * 0.5;
      k->probabilities(data(p), data(d), data(lse), data(delta), 0.5F, n);
      EXPECT_LT(relative_error(p, expected_p), 1e-6) << name << n;
      EXPECT_LT(relative_error(d, expected_d), 1e-6) << name << n;
    }
  }
}

TEST(RowKernels, SwigluAndItsBackwardFollowTheFormulas) {
  for (const auto& [name, k] : versions()) {
    for (const auto n : lengths) {
      const at::Tensor gate = 4 * at::randn({n}), up = at::randn({n}), d_out = at::randn({n});
      const at::Tensor out = at::empty({n}), again = at::empty({n}), d_gate = at::empty({n}), d_up = at::empty({n});
      k->swiglu_fp32(data(gate), data(up), data(out), n);
      k->swiglu_backward_fp32(data(d_out), data(gate), data(up), data(d_gate), data(d_up), data(again), n);
      const at::Tensor z = gate.to(at::kDouble), s = z.sigmoid();
      EXPECT_LT(relative_error(out, z * s * up), 1e-6) << name << n;
      EXPECT_TRUE(test::same_bits(out, again)) << name << n;
      EXPECT_LT(relative_error(d_gate, d_out * up * (s + z * s * (1 - s))), 2e-6) << name << n;
      EXPECT_LT(relative_error(d_up, d_out * z * s), 1e-6) << name << n;
    }
  }
}

TEST(RowKernels, InBf16RoundTheFp32ResultOnce) {
  for (const auto& [name, k] : versions()) {
    for (const auto n : lengths) {
      const at::Tensor gate = (4 * at::randn({n})).to(at::kBFloat16), up = at::randn({n}).to(at::kBFloat16);
      const at::Tensor out = at::empty({n}, at::kBFloat16), exact = at::empty({n});
      k->swiglu_bf16(data<c10::BFloat16>(gate), data<c10::BFloat16>(up), data<c10::BFloat16>(out), n);
      k->swiglu_fp32(data(gate.to(at::kFloat)), data(up.to(at::kFloat)), data(exact), n);
      EXPECT_TRUE(test::same_bits(out, exact.to(at::kBFloat16))) << name << n;

      const at::Tensor row = gate.clone();
      k->softmax_gradient_bf16(data<c10::BFloat16>(row), 20.0F, 0.5F, n);
      EXPECT_LT(relative_error(row, 0.5 * (gate.to(at::kDouble) - 20).exp()), 4e-3) << name << n;
    }
  }
}

TEST(RowKernels, StayFiniteFarFromZeroAndShowNaN) {
  for (const auto& [name, k] : versions()) {
    const at::Tensor gate = at::randn({20}), up = at::ones_like(gate), out = at::empty({20});
    gate[3] = -1e5;
    gate[19] = 1e5;
    gate[5] = NAN;
    k->swiglu_fp32(data(gate), data(up), data(out), 20);
    EXPECT_EQ(out[3].item<float>() * 0.0F, 0.0F) << name;
    EXPECT_EQ(out[19].item<float>(), 1e5F) << name;
    EXPECT_TRUE(std::isnan(out[5].item<float>())) << name;
    EXPECT_TRUE(std::isnan(k->softmax_fp32(data(gate), 20).sum)) << name;
  }
}

}  // namespace
}  // namespace trireme::kernels
