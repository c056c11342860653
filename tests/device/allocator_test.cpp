// SPDX-License-Identifier: Apache-2.0
#include "trireme/device/allocator.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/ones.h>
#include <c10/core/Allocator.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <thread>
#include <utility>
#include <vector>

#include "trireme/base/error.hpp"
#include "trireme/device/memory.hpp"

namespace trireme::device {
namespace {

using testing::HasSubstr;

class Allocator : public testing::Test {
 protected:
  static void SetUpTestSuite() { install_allocator(); }
  void SetUp() override {
    trim();
    before_ = memory_use();
  }
  void TearDown() override {
    set_limit(Bytes{0});
    set_cache_limit(Bytes{0});
  }

  /// Bytes charged since the beginning of the test.
  [[nodiscard]] Bytes charged(Category category, Space space = Space::device) const {
    return memory_use()[space].current[category] - before_[space].current[category];
  }
  /// Bytes reserved since the beginning of the test.
  [[nodiscard]] std::int64_t reserved() const { return (memory_use().reserved - before_.reserved).value; }

  MemoryUse before_;
};

at::Tensor bytes(std::int64_t size) { return at::empty({size}, at::kByte); }

TEST_F(Allocator, ChargesExactlyWhatTensorsHold) {
  const ChargeTo activations(Category::activations);
  const at::Tensor a = at::ones({37, 53}, at::kFloat);
  EXPECT_EQ(charged(Category::activations), Bytes{37 * 53 * 4});
  const at::Tensor b = at::mm(a, a.t());
  EXPECT_EQ(charged(Category::activations), Bytes{(37 * 53 + 37 * 37) * 4});
  const at::Tensor c = b.to(at::kBFloat16);
  EXPECT_EQ(charged(Category::activations), Bytes{(37 * 53 + 37 * 37) * 4 + 37 * 37 * 2});
}

TEST_F(Allocator, DischargesTheAccountThatPaid) {
  at::Tensor held;
  {
    const ChargeTo optimizer(Category::optimizer, Space::host);
    held = bytes(1000);
  }
  EXPECT_EQ(charged(Category::optimizer, Space::host), Bytes{1000});
  EXPECT_EQ(charged(Category::optimizer), Bytes{0});
  {
    const ChargeTo data(Category::data);
    held.reset();
  }
  EXPECT_EQ(charged(Category::optimizer, Space::host), Bytes{0});
  EXPECT_EQ(charged(Category::data), Bytes{0});
}

TEST_F(Allocator, DischargesWhenAnotherThreadFrees) {
  at::Tensor held;
  std::thread([&] {
    const ChargeTo communication(Category::communication);
    held = bytes(12345);
  }).join();
  EXPECT_EQ(charged(Category::communication), Bytes{12345});
  std::thread([tensor = std::move(held)]() mutable { tensor.reset(); }).join();
  EXPECT_EQ(charged(Category::communication), Bytes{0});
}

TEST_F(Allocator, SeesWhatAnOperatorAllocatesInside) {
  reset_peaks();
  const ChargeTo workspace(Category::workspace);
  const at::Tensor a = at::ones({64, 64}, at::kFloat);
  const at::Tensor sum = a.add(1).mul(2).sum();
  EXPECT_EQ(charged(Category::workspace), Bytes{64 * 64 * 4 + 4});
  EXPECT_GE(
      (memory_use()[Space::device].peak[Category::workspace] - before_[Space::device].current[Category::workspace])
          .value,
      2 * 64 * 64 * 4);
}

TEST_F(Allocator, AlignsEveryBlock) {
  for (const std::int64_t size : {1, 3, 63, 64, 65, 511, 513, 4095, 70'001, 1'000'003}) {
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(bytes(size).data_ptr()) % 64, 0U) << size;
  }
  for (const std::int64_t size : {1 << 20, (1 << 20) + 1, 5 << 20, 64 << 20}) {
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(bytes(size).data_ptr()) % 4096, 0U) << size;
  }
}

TEST_F(Allocator, GivesTheSameBlockAgain) {
  for (const std::int64_t size : {100, 5'000, 300'000, 3'000'000, 40'000'000}) {
    at::Tensor first = bytes(size);
    const void* at = first.data_ptr();
    first.reset();
    const std::int64_t reused = memory_use().reused;
    EXPECT_EQ(bytes(size).data_ptr(), at) << size;
    EXPECT_EQ(memory_use().reused, reused + 1) << size;
  }
}

TEST_F(Allocator, LosesAnEighthAtMost) {
  for (std::int64_t size = 1000; size < 50'000'000; size = size * 9 / 7) {
    trim();
    const std::int64_t start = reserved();
    const at::Tensor held = bytes(size);
    const std::int64_t header = size < 900'000 ? 128 : 8192;
    EXPECT_LE(reserved() - start, size + size / 8 + header) << size;
    EXPECT_GE(reserved() - start, size) << size;
  }
}

TEST_F(Allocator, TakesPowersOfTwoWithoutLoss) {
  for (std::int64_t size = 1 << 20; size <= 64 << 20; size *= 2) {
    trim();
    const std::int64_t start = reserved();
    const at::Tensor held = bytes(size);
    EXPECT_EQ(reserved() - start, size + 4096) << size;
  }
}

TEST_F(Allocator, TrimGivesCachedBlocksBackAndKeepsLiveOnes) {
  const at::Tensor held = bytes(10'000'000);
  bytes(20'000'000);
  bytes(1'000);
  const Bytes cached = memory_use().cached;
  EXPECT_GE(cached.value, 20'001'000);
  EXPECT_EQ(trim(), cached);
  EXPECT_EQ(memory_use().cached, Bytes{0});
  EXPECT_GE(reserved(), 10'000'000);
  EXPECT_LE(reserved(), 12'000'000);
  EXPECT_EQ(trim(), Bytes{0});
}

TEST_F(Allocator, KeepsNoMoreThanTheCacheLimitAndDropsTheLongestUnusedFirst) {
  set_cache_limit(Bytes{6'000'000});
  at::Tensor old = bytes(2'000'000);
  at::Tensor recent = bytes(3'000'000);
  at::Tensor newest = bytes(1'500'000);
  const void* recent_at = recent.data_ptr();
  const void* newest_at = newest.data_ptr();
  old.reset();
  recent.reset();
  newest.reset();
  EXPECT_LE(memory_use().cached.value, 6'000'000);
  const std::int64_t reused = memory_use().reused;
  EXPECT_EQ(bytes(1'500'000).data_ptr(), newest_at);
  EXPECT_EQ(bytes(3'000'000).data_ptr(), recent_at);
  EXPECT_EQ(memory_use().reused, reused + 2);
  const at::Tensor again = bytes(2'000'000);
  EXPECT_EQ(memory_use().reused, reused + 2);
}

TEST_F(Allocator, SizesThatDoNotRepeatDoNotPileUp) {
  std::int64_t largest = 0;
  for (std::int64_t size = 1'000'000; size < 200'000'000; size = size * 8 / 7) {
    bytes(size);
    largest = size;
  }
  EXPECT_LE(reserved(), largest * 1.125 * 1.5 + (70 << 20));
}

TEST_F(Allocator, CategoriesAddUpToItsOwnCount) {
  std::vector<at::Tensor> held;
  int i = 0;
  for (const Category category : all_categories()) {
    for (const Space space : {Space::device, Space::host}) {
      const ChargeTo scope(category, space);
      held.push_back(bytes(1 + 1000 * ++i));
    }
  }
  const MemoryUse use = memory_use();
  EXPECT_EQ(use[Space::device].current.sum() + use[Space::host].current.sum(), use.allocated);
  EXPECT_EQ(use[Space::device].current.sum(), use[Space::device].total);
  EXPECT_GE(use.reserved, use.allocated + use.cached);
}

TEST_F(Allocator, ServesTheRawInterface) {
  c10::Allocator& allocator = *c10::GetAllocator(c10::DeviceType::CPU);
  void* raw = allocator.raw_allocate(777);
  EXPECT_EQ(charged(Category::other), Bytes{777});
  allocator.raw_deallocate(raw);
  EXPECT_EQ(charged(Category::other), Bytes{0});

  const c10::DataPtr none = allocator.allocate(0);
  EXPECT_EQ(none.get(), nullptr);
  allocator.raw_deallocate(allocator.raw_allocate(0));

  c10::DataPtr some = allocator.allocate(16);
  EXPECT_TRUE(allocator.is_simple_data_ptr(some));
  static_cast<char*>(some.get())[15] = 42;
  const c10::DataPtr copy = allocator.clone(some.get(), 16);
  EXPECT_EQ(static_cast<const char*>(copy.get())[15], 42);
}

TEST_F(Allocator, FollowsAStorageThatGrows) {
  const ChargeTo activations(Category::activations);
  at::Tensor tensor = bytes(100);
  tensor.resize_({5000});
  EXPECT_EQ(charged(Category::activations), Bytes{5000});
}

TEST_F(Allocator, BeyondTheLimitReportsMemoryByCategory) {
  const ChargeTo optimizer(Category::optimizer);
  const at::Tensor held = bytes(3 << 20);
  set_limit(memory_use().reserved + Bytes{8 << 20});
  const ChargeTo activations(Category::activations);
  const at::Tensor fits = bytes(7 << 20);
  try {
    bytes(64 << 20);
    FAIL() << "the limit does not hold";
  } catch (const EnvironmentError& error) {
    const std::string message = error.what();
    EXPECT_EQ(error.code(), ExitCode::environment);
    EXPECT_THAT(message, HasSubstr("no 64 MiB for activations"));
    EXPECT_THAT(message, HasSubstr("lower batch.micro"));
    EXPECT_LT(message.find("activations ", message.find("category")), message.find("optimizer"));
  }
}

TEST_F(Allocator, ReportsOnAGpuTheAllocatorsBytesAndTheBudget) {
  const std::string message =
      no_gpu_memory_text({Category::workspace, Space::device}, Bytes{std::int64_t{2} << 30},
                         Bytes{std::int64_t{39} << 30}, Bytes{std::int64_t{38} << 30}, Bytes{std::int64_t{40} << 30});
  EXPECT_THAT(message, HasSubstr("no 2 GiB for workspace on top of 39 GiB reserved (38 GiB of it in use), and "
                                 "memory.budget allows 40 GiB"));
  const std::string without = no_gpu_memory_text({Category::workspace, Space::device}, Bytes{1}, {}, {}, {});
  EXPECT_THAT(without, testing::Not(HasSubstr("memory.budget allows")));
}

TEST_F(Allocator, GivesCachedBlocksBackBeforeItReachesTheLimit) {
  bytes(20 << 20);
  set_limit(before_.reserved + Bytes{25 << 20});
  const at::Tensor held = bytes(24 << 20);
  EXPECT_LE(reserved(), 25 << 20);
}

TEST_F(Allocator, WhatNoMachineHasIsAnEnvironmentError) {
  EXPECT_THROW(bytes(std::int64_t{1} << 45), EnvironmentError);
  EXPECT_THROW(bytes(std::int64_t{1} << 60), EnvironmentError);
  EXPECT_NE(bytes(100).data_ptr(), nullptr);
}

}  // namespace
}  // namespace trireme::device
