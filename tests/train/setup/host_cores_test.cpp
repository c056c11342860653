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
  EXPECT_EQ(host_threads(node(64, 4), 12), 4);
  EXPECT_EQ(host_threads(node(4, 4), 1), 1);
  EXPECT_EQ(host_threads(node(2, 4), 1), 1);
}

TEST(FewCoresWarning, SaysTheBandwidthAndWhatToSet) {
  const executor::HostWork work{.seconds = 2.0, .bytes = Bytes{5'000'000'000}};
  const std::string text = few_cores_warning(node(16, 2), 8, work);
  EXPECT_THAT(text, HasSubstr("2.5 GB/s"));
  EXPECT_THAT(text, HasSubstr("device.threads = 7"));
  EXPECT_THAT(few_cores_warning(node(1, 1), 1, work), HasSubstr("--cpus-per-task"));
  EXPECT_EQ(few_cores_warning(node(16, 2), 7, work), "");
  EXPECT_EQ(few_cores_warning(node(16, 2), 8, {}), "") << "nothing is offloaded";
}

}  // namespace
}  // namespace trireme::train
