// SPDX-License-Identifier: Apache-2.0
#include "trireme/base/io/concurrently.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <set>
#include <stdexcept>
#include <thread>
#include <vector>

namespace trireme::io {
namespace {

TEST(Concurrently, CallsForEachNumberOnce) {
  for (const std::size_t count : {0, 1, 63, 64, 200, 16384}) {
    std::vector<std::atomic<int>> calls(count);
    concurrently(count, [&](std::size_t i) { ++calls[i]; });
    EXPECT_TRUE(std::ranges::all_of(calls, [](const std::atomic<int>& n) { return n == 1; })) << count;
  }
}

TEST(Concurrently, HasSeveralThreadsForManyAndNoneForFew) {
  // Each waits until the other is there: one thread alone would wait in vain.
  std::mutex mutex;
  std::condition_variable changed;
  int there = 0;
  concurrently(128, [&](std::size_t i) {
    if (i > 1) return;
    std::unique_lock lock(mutex);
    ++there;
    changed.notify_all();
    EXPECT_TRUE(changed.wait_for(lock, std::chrono::minutes(1), [&] { return there == 2; }));
  });
  std::set<std::thread::id> ids;
  concurrently(100, [&](std::size_t) { ids.insert(std::this_thread::get_id()); });
  EXPECT_EQ(ids, std::set{std::this_thread::get_id()});
}

TEST(Concurrently, RethrowsAnExceptionWhenAllAreDone) {
  for (const std::size_t count : {1, 200}) {
    std::vector<std::atomic<int>> calls(count);
    const auto work = [&](std::size_t i) {
      ++calls[i];
      throw std::runtime_error("stale file handle");
    };
    EXPECT_THROW(concurrently(count, work), std::runtime_error);
    EXPECT_TRUE(std::ranges::all_of(calls, [](const std::atomic<int>& n) { return n == 1; })) << count;
  }
}

}  // namespace
}  // namespace trireme::io
