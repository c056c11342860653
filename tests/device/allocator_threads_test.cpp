// SPDX-License-Identifier: Apache-2.0
#include <ATen/ops/empty.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "trireme/device/allocator.hpp"
#include "trireme/device/memory.hpp"

namespace trireme::device {
namespace {

/// Allocates, writes, checks and frees blocks of many sizes; every fifth is swapped with one of another thread.
class Worker {
 public:
  Worker(int id, std::mutex& passing_on, at::Tensor& passed_on)
      : id_{id}, passing_on_{passing_on}, passed_on_{passed_on} {}

  void run(at::Tensor& result) {
    const ChargeTo scope(category());
    for (int round = 0; round < 3000; ++round) {
      at::Tensor& slot = live_[static_cast<std::size_t>(round) % live_.size()];
      slot = marked(1 + (std::int64_t{round} * 7919 + id_ * 104729) % 60'000 * (round % 50 == 0 ? 40 : 1));
      if (round % 5 == 0) {
        const std::scoped_lock guard(passing_on_);
        std::swap(passed_on_, slot);
      }
      if (round % 1000 == 0) trim();
      if (round % 700 == 0) (void)memory_use();
    }
    live_.clear();
    result = marked(1000 * (id_ + 1));
  }

  [[nodiscard]] Category category() const { return all_categories()[static_cast<std::size_t>(id_)]; }

 private:
  at::Tensor marked(std::int64_t size) const {
    at::Tensor tensor = at::empty({size}, at::kByte);
    auto* data = static_cast<unsigned char*>(tensor.data_ptr());
    std::fill_n(data, size, static_cast<unsigned char>(id_));
    EXPECT_EQ(std::count(data, data + size, static_cast<unsigned char>(id_)), size);
    return tensor;
  }

  int id_;
  std::mutex& passing_on_;
  at::Tensor& passed_on_;
  std::vector<at::Tensor> live_{16};
};

TEST(AllocatorThreads, StayExact) {
  install_allocator();
  trim();
  const MemoryUse before = memory_use();
  std::mutex passing_on;
  at::Tensor passed_on;
  std::vector<Worker> workers;
  for (int id = 0; id < 8; ++id) workers.emplace_back(id, passing_on, passed_on);
  std::vector<at::Tensor> results(workers.size());
  std::vector<std::thread> team;
  for (std::size_t i = 0; i < workers.size(); ++i) team.emplace_back([&, i] { workers[i].run(results[i]); });
  for (std::thread& thread : team) thread.join();
  passed_on.reset();

  const MemoryUse use = memory_use();
  EXPECT_EQ(use[Space::device].current.sum() + use[Space::host].current.sum(), use.allocated);
  for (std::size_t i = 0; i < workers.size(); ++i) {
    const Category category = workers[i].category();
    EXPECT_EQ(use[Space::device].current[category] - before[Space::device].current[category],
              Bytes{1000 * (static_cast<std::int64_t>(i) + 1)});
  }
  results.clear();
  EXPECT_EQ(memory_use().allocated, before.allocated);
}

}  // namespace
}  // namespace trireme::device
