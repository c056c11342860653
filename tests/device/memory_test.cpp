// SPDX-License-Identifier: Apache-2.0
#include "trireme/device/memory.hpp"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "trireme/device/history.hpp"

namespace trireme::device {
namespace {

Bytes current(Category category, Space space = Space::device) { return memory_use()[space].current[category]; }

TEST(Memory, CategoriesHaveTheNamesOfTheMetrics) {
  std::vector<std::string> names;
  for (const Category category : all_categories()) names.emplace_back(to_text(category));
  const std::vector<std::string> metrics{"parameters.sharded",
                                         "parameters.unsharded",
                                         "parameters.resharded",
                                         "gradients.sharded",
                                         "gradients.unsharded",
                                         "optimizer",
                                         "activations",
                                         "workspace",
                                         "communication",
                                         "data",
                                         "other"};
  EXPECT_EQ(names, metrics);
  EXPECT_EQ(to_text(Space::device), "device");
  EXPECT_EQ(to_text(Space::host), "host");
}

TEST(ChargeTo, NestsAndRestores) {
  const Account outermost = current_account();
  {
    const ChargeTo activations(Category::activations);
    EXPECT_EQ(current_account(), (Account{Category::activations, Space::device}));
    {
      const ChargeTo data(Category::data, Space::host);
      EXPECT_EQ(current_account(), (Account{Category::data, Space::host}));
    }
    EXPECT_EQ(current_account(), (Account{Category::activations, Space::device}));
  }
  EXPECT_EQ(current_account(), outermost);
}

TEST(ChargeTo, BelongsToTheThread) {
  const ChargeTo activations(Category::activations);
  Account seen{Category::data, Space::host};
  std::thread([&] { seen = current_account(); }).join();
  EXPECT_EQ(seen, (Account{Category::other, Space::device}));
}

TEST(Charge, LastsAsLongAsItsHandle) {
  const Bytes before = current(Category::communication, Space::host);
  {
    Charge window({Category::communication, Space::host}, Bytes{1000});
    EXPECT_EQ(current(Category::communication, Space::host) - before, Bytes{1000});
    Charge moved = std::move(window);
    EXPECT_EQ(current(Category::communication, Space::host) - before, Bytes{1000});
    moved = Charge({Category::communication, Space::host}, Bytes{10});
    EXPECT_EQ(current(Category::communication, Space::host) - before, Bytes{10});
  }
  EXPECT_EQ(current(Category::communication, Space::host), before);
}

TEST(Peaks, KeepTheSplitOfTheHighestMoment) {
  reset_peaks();
  const SpaceUse before = memory_use()[Space::host];
  { const Charge alone({Category::data, Space::host}, Bytes{70}); }
  {
    const Charge base({Category::optimizer, Space::host}, Bytes{50});
    const Charge more({Category::data, Space::host}, Bytes{40});
  }
  const SpaceUse after = memory_use()[Space::host];
  EXPECT_EQ(after.peak_total - before.total, Bytes{90});
  EXPECT_EQ(after.at_peak[Category::data] - before.current[Category::data], Bytes{40});
  EXPECT_EQ(after.at_peak[Category::optimizer] - before.current[Category::optimizer], Bytes{50});
  EXPECT_EQ(after.at_peak.sum(), after.peak_total);
  EXPECT_EQ(after.peak[Category::data] - before.current[Category::data], Bytes{70});
  EXPECT_EQ(after.total, before.total);
}

TEST(Peaks, BeginAnewFromWhatIsInUse) {
  const Charge held({Category::optimizer, Space::host}, Bytes{500});
  { const Charge passing({Category::data, Space::host}, Bytes{700}); }
  reset_peaks();
  const SpaceUse use = memory_use()[Space::host];
  EXPECT_EQ(use.peak_total, use.total);
  EXPECT_EQ(use.at_peak.sum(), use.total);
  EXPECT_EQ(use.peak.sum(), use.total);
}

TEST(Peaks, OfTheTwoSpacesAreApart) {
  reset_peaks();
  const Bytes device = memory_use()[Space::device].peak_total;
  const Charge held({Category::data, Space::host}, Bytes{700});
  EXPECT_EQ(memory_use()[Space::device].peak_total, device);
}

TEST(ProcessMemory, HoldsWhatTheProcessTouchedAndMapped) {
  const ProcessMemory before = process_memory();
  ASSERT_GT(before.resident.current.value, 0);
  constexpr std::size_t size = std::size_t{32} << 20;
  {
    std::vector<char> touched(size, 1);
    const ProcessMemory after = process_memory();
    EXPECT_GT(after.resident.current - before.resident.current, Bytes{size / 2}) << static_cast<int>(touched[size / 2]);
    EXPECT_GE(after.resident.peak, after.resident.current);
    EXPECT_GE(after.mapped.current, after.resident.current);
  }
  EXPECT_GE(process_memory().mapped.peak, process_memory().mapped.current);
}

TEST(ProcessMemory, IsBoundedByTheLimitOnAddressSpace) {
  rlimit limit{};
  ASSERT_EQ(getrlimit(RLIMIT_AS, &limit), 0);
  const auto used = static_cast<rlim_t>(process_memory().mapped.current.value);
  const rlimit bounded{.rlim_cur = used + (rlim_t{64} << 20), .rlim_max = limit.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_AS, &bounded), 0);
  const bool small = can_map(Bytes{8 << 20});
  const bool large = can_map(Bytes{128 << 20});
  ASSERT_EQ(setrlimit(RLIMIT_AS, &limit), 0);
  EXPECT_TRUE(small);
  EXPECT_FALSE(large);
  EXPECT_TRUE(can_map(Bytes{128 << 20}));
  EXPECT_TRUE(can_map(Bytes{-1})) << "nothing";
}

TEST(Peaks, RememberTheOpThatReachedThem) {
  reset_peaks();
  const auto peak_op = [](Category category) { return memory_use()[Space::host].peak_ops[category]; };
  EXPECT_EQ(peak_op(Category::data), no_op) << "nothing has grown";
  set_operation({.op = 4, .step = 1});
  const Charge first({Category::data, Space::host}, Bytes{1000});
  set_operation({.op = 5, .step = 1});
  { const Charge second({Category::data, Space::host}, Bytes{10}); }
  set_operation({.op = 6, .step = 1});
  const Charge third({Category::data, Space::host}, Bytes{10});
  set_operation({});
  EXPECT_EQ(peak_op(Category::data), 5) << "the first to reach it";
  EXPECT_EQ(memory_use()[Space::host].peak_ops.total, 5);
  reset_peaks();
  EXPECT_EQ(peak_op(Category::data), no_op);
}

}  // namespace
}  // namespace trireme::device
