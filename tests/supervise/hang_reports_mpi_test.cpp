// SPDX-License-Identifier: Apache-2.0
//
// ranks: 4
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "support/temporary_directory.hpp"
#include "trireme/mpi/communicator.hpp"
#include "trireme/mpi/topology.hpp"
#include "trireme/supervise/hang_reports.hpp"

namespace trireme::supervise {
namespace {

mpi::Communicator job() {
  mpi::Communicator world = mpi::Communicator::from(MPI_COMM_WORLD);
  world.learn_nodes();
  return world;
}

std::string on_this_node(int rank) { return "rank " + std::to_string(rank) + " on " + mpi::hostname(); }

TEST(HangReports, NameTheRanksThatWroteNone) {
  const mpi::Communicator world = job();
  const test::TemporaryDirectory output;
  EXPECT_EQ(silent_ranks(output.path(), world), "") << "no common file system";
  EXPECT_EQ(silent_ranks(output.path() + "/none", world), "");
  for (const int rank : {0, 2}) std::ofstream(hang_report_path(output.path(), rank)) << "{}";
  EXPECT_EQ(silent_ranks(output.path(), world), on_this_node(1) + ", " + on_this_node(3));
  for (const int rank : {1, 3}) std::ofstream(hang_report_path(output.path(), rank)) << "{}";
  EXPECT_EQ(silent_ranks(output.path(), world), "");
}

TEST(HangReports, OfLargeJobsAreOneANode) {
  const mpi::Communicator world = job();
  EXPECT_THAT(hang_reporters(world, 4), testing::ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(hang_reporters(world, 3), testing::ElementsAre(0));
  EXPECT_THAT(hang_reporters(mpi::Communicator::from(MPI_COMM_WORLD), 3), testing::SizeIs(4)) << "nodes not learnt";
  const test::TemporaryDirectory output;
  std::ofstream(hang_report_path(output.path(), 0)) << "{}";
  EXPECT_EQ(silent_ranks(output.path(), world, 3), "") << "the others are not expected to write any";
}

}  // namespace
}  // namespace trireme::supervise
