// SPDX-License-Identifier: Apache-2.0
#include "train/setup/host_memory.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/base/error.hpp"

namespace trireme::train {
namespace {

constexpr std::int64_t gib = std::int64_t{1} << 30;

TEST(CheckHostMemory, CountsEveryRankOfTheNode) {
  planner::Memory memory;
  EXPECT_NO_THROW(check_host_memory(memory, 8, Bytes{0})) << "nothing is offloaded";
  memory.host.optimizer = Bytes{10 * gib};
  memory.host.gradients_sharded = Bytes{5 * gib};
  memory.host.other = Bytes{gib};  // a checkpoint's copy, whose lack of memory is no reason to refuse a run
  EXPECT_NO_THROW(check_host_memory(memory, 8, Bytes{120 * gib}));
  try {
    check_host_memory(memory, 8, Bytes{120 * gib - 1});
    FAIL() << "it fits nowhere";
  } catch (const EnvironmentError& error) {
    EXPECT_THAT(error.what(),
                testing::HasSubstr("15 GiB of a rank in page-locked host memory, 120 GiB for the 8 ranks"));
  }
}

}  // namespace
}  // namespace trireme::train
