// SPDX-License-Identifier: Apache-2.0
#include "train/setup/host_cores.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace trireme::train {
namespace {

using testing::HasSubstr;

mpi::Topology node(int cores, int ranks) {
  mpi::Topology topology;
  topology.node_cores = cores;
  topology.node_ranks = ranks;
  return topology;
}

TEST(HostThreads, AreTheCoresThatComputeLeavesAndOneAtLeast) {
  EXPECT_EQ(host_threads(node(64, 4), 12, false), 4);
  EXPECT_EQ(host_threads(node(4, 4), 1, false), 1);
  EXPECT_EQ(host_threads(node(2, 4), 1, false), 1);
}

TEST(HostThreads, AreARanksThreadsButOneWhereAGpuComputes) {
  EXPECT_EQ(host_threads(node(64, 4), 16, true), 15);
  EXPECT_EQ(host_threads(node(64, 4), 4, true), 3) << "device.threads";
  EXPECT_EQ(host_threads(node(1, 1), 1, true), 1);
}

TEST(FewCoresWarning, ReportsTheBandwidthAndASetting) {
  const executor::HostWork work{.seconds = 2.0, .bytes = Bytes{5'000'000'000}};
  const std::string text = few_cores_warning(node(16, 2), 8, false, work);
  EXPECT_THAT(text, HasSubstr("2.5 GB/s"));
  EXPECT_THAT(text, HasSubstr("device.threads = 7"));
  EXPECT_THAT(few_cores_warning(node(1, 1), 1, false, work), HasSubstr("--cpus-per-task"));
  EXPECT_EQ(few_cores_warning(node(16, 2), 7, false, work), "");
  EXPECT_EQ(few_cores_warning(node(16, 2), 8, false, {}), "") << "nothing is offloaded";
}

TEST(FewCoresWarning, OnAGpuReportsThatOneThreadUpdates) {
  const executor::HostWork work{.seconds = 2.0, .bytes = Bytes{5'000'000'000}};
  EXPECT_EQ(few_cores_warning(node(16, 1), 16, true, work), "");
  const std::string text = few_cores_warning(node(16, 1), 1, true, work);
  EXPECT_THAT(text, HasSubstr("one thread: a rank has 16 cores and 1 thread."));
  EXPECT_THAT(text, HasSubstr("device.threads = 16"));
  EXPECT_THAT(few_cores_warning(node(2, 1), 2, true, work), HasSubstr("--cpus-per-task"));
}

}  // namespace
}  // namespace trireme::train
