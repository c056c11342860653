// SPDX-License-Identifier: Apache-2.0
//
// ranks: 1 4
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "trireme/base/error.hpp"
#include "trireme/mpi/communicator.hpp"
#include "trireme/mpi/topology.hpp"

namespace trireme::mpi {
namespace {

static_assert(!std::is_copy_constructible_v<Communicator> && std::is_nothrow_move_constructible_v<Communicator>);

TEST(Communicator, SplitsByColourInTheOrderOfKeys) {
  const Communicator world = Communicator::from(MPI_COMM_WORLD);
  const Communicator reversed = world.split(world.rank() % 2, -world.rank());
  EXPECT_EQ(reversed.size(), (world.size() + 1 - world.rank() % 2) / 2);
  EXPECT_EQ(reversed.job_rank(reversed.rank()), world.rank());
  if (reversed.size() > 1) {
    EXPECT_GT(reversed.job_rank(0), reversed.job_rank(1));
  }
}

TEST(Communicator, MovesLeaveNothingToFreeTwice) {
  Communicator first = Communicator::from(MPI_COMM_WORLD);
  const MPI_Comm handle = first.handle();
  Communicator second = std::move(first);
  EXPECT_EQ(second.handle(), handle);
  EXPECT_EQ(first.handle(), MPI_COMM_NULL);
  Communicator third = second.duplicate();
  third = std::move(second);
  EXPECT_EQ(third.handle(), handle);
}

TEST(Communicator, IsNotFreedByOneRankThatUnwinds) {
  const Communicator world = Communicator::from(MPI_COMM_WORLD);
  // Freeing is collective: it would wait for the ranks that did not throw.
  if (world.rank() == 0) {
    try {
      const Communicator leaked = Communicator::from(MPI_COMM_SELF);
      throw std::runtime_error("on the way out");
    } catch (const std::runtime_error&) {
    }
  }
  EXPECT_EQ(MPI_Barrier(world.handle()), MPI_SUCCESS);
}

TEST(Communicator, NamesRanksOnceTheNodesAreLearnt) {
  Communicator world = Communicator::from(MPI_COMM_WORLD);
  const int last = world.size() - 1;
  EXPECT_EQ(world.name_of(last), "rank " + std::to_string(last));
  EXPECT_TRUE(world.rank_of_each_node().empty());
  world.learn_nodes();
  EXPECT_EQ(world.split(0, -world.rank()).name_of(0), "rank " + std::to_string(last) + " on " + hostname());
  EXPECT_THAT(world.rank_of_each_node(), testing::ElementsAre(0));
}

TEST(Communicator, TakesRanksOfEveryPlaceInANode) {
  EXPECT_THAT(some_rank_of_each(std::vector{0, 0, 1, 1, 2, 2, 3}, 4), testing::ElementsAre(0, 3, 4, 6));
  EXPECT_THAT(some_rank_of_each(std::vector{0, 1, 0, 1}, 2), testing::ElementsAre(0, 3));
}

TEST(Check, ThrowsMpisOwnTextAndThePlace) {
  const Communicator world = Communicator::from(MPI_COMM_WORLD);
  try {
    const int word = 0;
    check(MPI_Send(&word, 1, MPI_INT, world.size() + 5, 0, world.handle()), "send to nobody");
    ADD_FAILURE() << "no error";
  } catch (const EnvironmentError& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("send to nobody"));
    EXPECT_THAT(error.what(), testing::HasSubstr("rank"));
    EXPECT_THAT(error.what(), testing::HasSubstr("communicator_mpi_test.cpp"));
  }
}

TEST(ProbeTopology, FindsAllRanksOnThisNode) {
  const Communicator world = Communicator::from(MPI_COMM_WORLD);
  const Topology topology = probe_topology(world);
  EXPECT_EQ(topology.nodes, 1);
  EXPECT_EQ(topology.node_ranks, world.size());
  EXPECT_EQ(topology.node_rank, world.rank());
  EXPECT_GE(topology.rank_cores, 1);
  EXPECT_GE(topology.node_cores, 1);
  EXPECT_FALSE(topology.host.empty());
}

}  // namespace
}  // namespace trireme::mpi
