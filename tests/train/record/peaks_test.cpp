// SPDX-License-Identifier: Apache-2.0
#include "train/record/peaks.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace trireme::train {
namespace {

using device::Category;
using testing::ContainsRegex;

std::string words(int op) { return "op " + std::to_string(op); }

device::MemoryUse step(std::int64_t activations, int op, std::int64_t optimizer) {
  device::MemoryUse use;
  device::SpaceUse& on_device = use.spaces[0];
  on_device.peak[Category::activations] = {activations};
  on_device.peak_ops.category[static_cast<std::size_t>(Category::activations)] = op;
  on_device.peak_total = {activations};
  on_device.peak_ops.total = op;
  use.spaces[1].peak[Category::optimizer] = {optimizer};
  return use;
}

TEST(RunPeaks, KeepTheHighestStepOfEachCategoryAndItsOp) {
  RunPeaks peaks;
  peaks.add(step(1000, 3, 10));
  peaks.add(step(5000, 7, 10));
  peaks.add(step(4000, 9, 2048));
  const std::string table = peaks.table(words);
  EXPECT_THAT(table, ContainsRegex("activations +4.88 KiB +op 7"));
  EXPECT_THAT(table, ContainsRegex("optimizer .*2 KiB +all the step"));
  EXPECT_THAT(table, ContainsRegex("all at once +4.88 KiB +op 7"));
  EXPECT_THAT(table, testing::Not(testing::HasSubstr("communication"))) << "what nothing used";
}

TEST(OverBudgetWarning, NamesWhatWasLargestWhenMostWasTaken) {
  device::SpaceUse use;
  use.peak_total = {5 << 20};
  use.at_peak[Category::workspace] = {1 << 20};
  use.at_peak[Category::activations] = {4 << 20};
  EXPECT_EQ(over_budget_warning(Bytes{5 << 20}, use), "") << "the budget itself is allowed";
  EXPECT_THAT(over_budget_warning(Bytes{(5 << 20) - 1}, use), testing::HasSubstr("activations 4 MiB, workspace 1 MiB"));
}

}  // namespace
}  // namespace trireme::train
