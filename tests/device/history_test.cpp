// SPDX-License-Identifier: Apache-2.0
#include "trireme/device/history.hpp"

#include <gtest/gtest.h>

#include <map>
#include <thread>

#include "trireme/device/allocator.hpp"
#include "trireme/device/buffer.hpp"

namespace trireme::device {
namespace {

/// The blocks that are left when events are played one after another.
std::map<std::uintptr_t, Bytes> played(const MemoryHistory& history) {
  std::map<std::uintptr_t, Bytes> live;
  for (const MemoryEvent& event : history.events) {
    if (event.allocated)
      EXPECT_TRUE(live.emplace(event.address, event.size).second) << "allocated twice";
    else
      EXPECT_EQ(live.erase(event.address), 1U) << "freed, but not allocated";
  }
  return live;
}

class MemoryHistoryTest : public testing::Test {
 protected:
  MemoryHistoryTest() { install_allocator(); }
  ~MemoryHistoryTest() override {
    record_memory(0);
    set_operation({});
  }
};

TEST_F(MemoryHistoryTest, HoldsWhoAllocatedWhatAndWhen) {
  record_memory(100);
  set_operation({.op = 3, .step = 1});
  const at::Tensor kept = buffer(Category::optimizer, 1000, DType::fp32, Space::host);
  { const at::Tensor gone = buffer(Category::activations, 10, DType::bf16); }
  const MemoryHistory history = memory_history();
  ASSERT_EQ(history.events.size(), 3U);
  ASSERT_EQ(history.live.size(), 1U);
  EXPECT_EQ(history.live[0].address, reinterpret_cast<std::uintptr_t>(kept.const_data_ptr()));
  EXPECT_EQ(history.live[0].size, Bytes{4000});
  EXPECT_EQ(history.live[0].account, (Account{Category::optimizer, Space::host}));
  EXPECT_EQ(history.live[0].operation.op, 3);
  EXPECT_EQ(history.live[0].operation.step, 1);
  EXPECT_FALSE(history.events[2].allocated);
  EXPECT_LE(history.events[0].microseconds, history.events[2].microseconds);
}

TEST_F(MemoryHistoryTest, ShowsAnotherAccountAsFreedAndAllocated) {
  record_memory(100);
  const at::Tensor tensor = buffer(Category::workspace, 64, DType::fp32);
  charge_to(tensor, {.category = Category::activations});
  const MemoryHistory history = memory_history();
  ASSERT_EQ(history.events.size(), 3U);
  EXPECT_EQ(history.live.at(0).account.category, Category::activations);
  EXPECT_EQ(played(history).size(), 1U);
}

TEST_F(MemoryHistoryTest, KeepsTheNewestAndAllThatLive) {
  const at::Tensor before = buffer(Category::other, 10, DType::fp32);
  record_memory(5);
  std::vector<at::Tensor> kept;
  for (int i = 0; i < 20; ++i) kept.push_back(buffer(Category::data, 10, DType::fp32));
  const MemoryHistory history = memory_history();
  EXPECT_EQ(history.events.size(), 5U);
  EXPECT_EQ(history.dropped, 15);
  EXPECT_EQ(history.live.size(), 20U);
  record_memory(0);
  EXPECT_TRUE(memory_history().events.empty());
}

TEST_F(MemoryHistoryTest, IsConsistentOverThreads) {
  record_memory(1'000'000);
  std::vector<std::jthread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([t] {
      set_operation({.op = t, .step = 0});
      for (int i = 0; i < 500; ++i) (void)buffer(Category::activations, 100 + i % 7, DType::fp32);
    });
  threads.clear();
  const MemoryHistory history = memory_history();
  EXPECT_EQ(history.events.size(), 4000U);
  EXPECT_TRUE(played(history).empty());
  EXPECT_TRUE(history.live.empty());
}

}  // namespace
}  // namespace trireme::device
