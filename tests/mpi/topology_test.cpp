// SPDX-License-Identifier: Apache-2.0
#include "trireme/mpi/topology.hpp"

#include <gtest/gtest.h>

#include "trireme/base/error.hpp"

namespace trireme::mpi {
namespace {

Topology node(int ranks, int cores) { return {.host = "n", .node_ranks = ranks, .node_cores = cores}; }

TEST(ThreadsForRank, ShareTheNodesCores) {
  EXPECT_EQ(threads_for_rank(node(1, 2), 0, ""), 2);
  EXPECT_EQ(threads_for_rank(node(2, 2), 0, ""), 1);
  EXPECT_EQ(threads_for_rank(node(4, 2), 0, ""), 1);
  EXPECT_EQ(threads_for_rank(node(8, 96), 0, ""), 12);
  EXPECT_EQ(threads_for_rank(node(3, 8), 0, ""), 2);
}

TEST(ThreadsForRank, FollowTheRunFileThenTheEnvironment) {
  EXPECT_EQ(threads_for_rank(node(2, 8), 3, "2"), 3);
  EXPECT_EQ(threads_for_rank(node(2, 8), 0, "2"), 2);
  EXPECT_EQ(threads_for_rank(node(2, 8), 0, "2,1"), 2);
  EXPECT_EQ(threads_for_rank(node(2, 8), 0, "many"), 4);
  EXPECT_EQ(threads_for_rank(node(2, 8), 0, "0"), 4);
}

TEST(ThreadsForRank, RefuseANumberThatNoNodeRuns) {
  EXPECT_EQ(threads_for_rank(node(1, 2), 0, "1024"), 1024);
  EXPECT_EQ(threads_for_rank(node(1, 512), 0, "2048"), 2048);
  for (const char* text : {"100000", "4294967297"})
    EXPECT_THROW((void)threads_for_rank(node(1, 2), 0, text), EnvironmentError) << text;
  EXPECT_EQ(threads_for_rank(node(1, 2), 2, "100000"), 2) << "the run file decides";
}

TEST(CoresOfQuota, ReadsCpuMax) {
  EXPECT_EQ(cores_of_quota("max 100000"), 0);
  EXPECT_EQ(cores_of_quota("400000 100000"), 4);
  EXPECT_EQ(cores_of_quota("350000 100000"), 3);
  EXPECT_EQ(cores_of_quota("50000 100000"), 1);
  EXPECT_EQ(cores_of_quota(""), 0);
  EXPECT_EQ(cores_of_quota("nonsense"), 0);
  EXPECT_EQ(cores_of_list("0-3,8"), 5);
  EXPECT_EQ(cores_of_list("7"), 1);
  EXPECT_EQ(cores_of_list(""), 0);
}

}  // namespace
}  // namespace trireme::mpi
