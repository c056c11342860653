// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/randn.h>
#include <gtest/gtest.h>

#include <cstdint>

/// Comparing tensors, in the tests of kernels and stages.
namespace trireme::test {

/// libtorch seeds its generator from the clock: every test starts from the same seed instead, whatever ran before it.
class SeedEveryTest final : public testing::EmptyTestEventListener {
  void OnTestStart(const testing::TestInfo& /*test*/) override {
    at::Generator generator = at::detail::getDefaultCPUGenerator();
    generator.set_current_seed(1234);
  }
};
inline const bool seeds_every_test = [] {
  testing::UnitTest::GetInstance()->listeners().Append(new SeedEveryTest);  // googletest deletes it
  return true;
}();

/// |a - b| / |b| in the L2 norm, in fp64.
inline double relative_error(const at::Tensor& a, const at::Tensor& b) {
  const at::Tensor reference = b.detach().to(at::kDouble);
  const at::Tensor difference = a.detach().to(at::kDouble) - reference;
  return (at::linalg_vector_norm(difference) / at::linalg_vector_norm(reference)).item<double>();
}

/// Equal bit for bit, type and shape included.
inline bool same_bits(const at::Tensor& a, const at::Tensor& b) {
  if (a.scalar_type() != b.scalar_type() || a.sizes() != b.sizes()) return false;
  const auto type = a.element_size() == 2 ? at::kShort : (a.element_size() == 4 ? at::kInt : at::kLong);
  return at::equal(a.contiguous().view(type), b.contiguous().view(type));
}

/// Runs `body` with one thread: kernels called in a parallel region of one thread stay on it.
template <class Body>
void on_one_thread(const Body& body) {
#pragma omp parallel num_threads(1)
  body();
}

}  // namespace trireme::test
