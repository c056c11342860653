// SPDX-License-Identifier: Apache-2.0
#include <ATen/ops/empty.h>
#include <c10/core/Device.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/base/error.hpp"
#include "trireme/device/gpus.hpp"
#include "trireme/device/memory.hpp"

namespace trireme::device {
namespace {

using testing::HasSubstr;

class MemoryOnDevice : public testing::Test {
 protected:
  void SetUp() override {
    if (probe_gpus().gpus.empty()) GTEST_SKIP() << "no GPU here";
  }
  static at::Tensor bytes(std::int64_t count) {
    return at::empty({count}, at::TensorOptions(at::kByte).device(at::kCUDA));
  }
};

TEST_F(MemoryOnDevice, EndsWhereTheBudgetDoes) {
  const Bytes all = probe_gpus().gpus.at(0).memory;
  const c10::Device gpu = use_gpu(0);
  const Bytes before = memory_use()[Space::device].total;
  cap_gpu_memory(gpu, Bytes{std::int64_t{512} << 20}, all);
  const ChargeTo activations(Category::activations);
  const at::Tensor fits = bytes(256 << 20);
  EXPECT_EQ(memory_use()[Space::device].total - before, Bytes{256 << 20});
  try {
    bytes(300 << 20);
    FAIL() << "the budget does not hold";
  } catch (const EnvironmentError& error) {
    EXPECT_THAT(error.what(), HasSubstr("no 300 MiB for activations"));
    EXPECT_THAT(error.what(), HasSubstr("memory.budget allows 512 MiB"));
  }
  cap_gpu_memory(gpu, all, all);
  EXPECT_TRUE(bytes(300 << 20).defined());
}

}  // namespace
}  // namespace trireme::device
