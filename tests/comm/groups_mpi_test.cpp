// SPDX-License-Identifier: Apache-2.0
//
// ranks: 1 4 6
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "trireme/base/error.hpp"
#include "trireme/comm/groups.hpp"

namespace trireme::comm {
namespace {

using mesh::Group;
using schedule::Lane;

std::vector<mesh::Mesh> meshes_of(int ranks) {
  std::vector<mesh::Mesh> meshes;
  for (int replicate = 1; replicate <= ranks; ++replicate)
    for (int shard = 1; replicate * shard <= ranks; ++shard)
      if (ranks % (replicate * shard) == 0)
        meshes.push_back({.replicate = replicate, .shard = shard, .tensor = ranks / (replicate * shard)});
  return meshes;
}

// The members' ranks in the world, in the communicator's order.
std::vector<Rank> members(const mpi::Communicator& communicator) {
  std::vector<Rank> ranks;
  for (int rank = 0; rank < communicator.size(); ++rank) ranks.push_back({communicator.job_rank(rank)});
  return ranks;
}

TEST(Groups, HoldTheMeshsRanksInOrder) {
  const mpi::Communicator world = mpi::Communicator::from(MPI_COMM_WORLD);
  for (const mesh::Mesh& mesh : meshes_of(world.size())) {
    Groups groups(world, mesh);
    const mesh::Coordinates at = mesh.coordinates({world.rank()});
    for (const mesh::GroupRow& row : mesh::groups) {
      if (row.members != mesh::Members::all) continue;
      groups.add(row.group, Lane::reduce, mesh.size(row.axes));
      EXPECT_EQ(members(groups.at(row.group, Lane::reduce)), mesh.group(row.axes, at)) << mesh.text() << row.name;
    }
    EXPECT_EQ(groups.at(Group::dp, Lane::reduce).rank(), mesh.dp_rank(at).value) << mesh.text();
  }
}

TEST(Groups, HoldConsecutiveRanksWhereTheyAreAPart) {
  const mpi::Communicator world = mpi::Communicator::from(MPI_COMM_WORLD);
  for (const mesh::Mesh& mesh : meshes_of(world.size()))
    for (const Group group : {Group::shard_group, Group::tensor_group, Group::expert})
      for (int ranks = 1; ranks <= mesh.size(mesh::row_of(group).axes); ++ranks) {
        const std::vector<Rank> all = mesh.group(mesh::row_of(group).axes, mesh.coordinates({world.rank()}));
        if (static_cast<int>(all.size()) % ranks != 0) continue;
        Groups groups(world, mesh);
        groups.add(group, Lane::gather, ranks);
        const auto mine = std::find(all.begin(), all.end(), Rank{world.rank()}) - all.begin();
        const auto first = all.begin() + mine / ranks * ranks;
        EXPECT_EQ(members(groups.at(group, Lane::gather)), std::vector<Rank>(first, first + ranks)) << mesh.text();
      }
}

TEST(Groups, HoldRanksAtEqualDistancesWhereTheirNeighboursHoldOtherExperts) {
  const mpi::Communicator world = mpi::Communicator::from(MPI_COMM_WORLD);
  for (const mesh::Mesh& mesh : meshes_of(world.size())) {
    const std::vector<Rank> all = mesh.group(mesh::row_of(Group::expert_shard).axes, mesh.coordinates({world.rank()}));
    for (int ranks = 1; ranks <= static_cast<int>(all.size()); ++ranks) {
      if (static_cast<int>(all.size()) % ranks != 0) continue;
      const int parts = static_cast<int>(all.size()) / ranks;
      const auto mine = std::find(all.begin(), all.end(), Rank{world.rank()}) - all.begin();
      std::vector<Rank> expected;
      for (auto i = mine % parts; i < std::ssize(all); i += parts) expected.push_back(all[static_cast<std::size_t>(i)]);
      Groups groups(world, mesh);
      groups.add(Group::expert_shard, Lane::gather, ranks);
      EXPECT_EQ(members(groups.at(Group::expert_shard, Lane::gather)), expected) << mesh.text() << ranks;
    }
  }
}

TEST(Groups, HoldTheFirstAndTheLastWhereBothHoldATiedEmbedding) {
  const mpi::Communicator world = mpi::Communicator::from(MPI_COMM_WORLD);
  for (const int ranks : {2, 3, 4, 6}) {
    if (world.size() % ranks != 0) continue;
    const mesh::Mesh mesh{.pipeline = ranks, .shard = world.size() / ranks};
    const std::vector<Rank> all = mesh.group(mesh::Axis::pipeline, mesh.coordinates({world.rank()}));
    Groups groups(world, mesh);
    groups.add(Group::tied, Lane::reduce, 2);
    const bool between = all.front() != Rank{world.rank()} && all.back() != Rank{world.rank()};
    EXPECT_EQ(members(groups.at(Group::tied, Lane::reduce)),
              between ? std::vector{Rank{world.rank()}} : (std::vector{all.front(), all.back()}))
        << mesh.text();
  }
}

TEST(Groups, AreThoseThatWereAdded) {
  const mpi::Communicator world = mpi::Communicator::from(MPI_COMM_WORLD);
  Groups groups(world, {.shard = world.size()});
  EXPECT_THROW((void)groups.at(Group::shard, Lane::gather), BugError);
  EXPECT_THROW(groups.add(Group::shard, Lane::gather, world.size() + 1), BugError);
  groups.add(Group::shard, Lane::gather, world.size());
  EXPECT_EQ(groups.at(Group::shard, Lane::gather).size(), world.size());
  EXPECT_THROW((void)groups.at(Group::shard, Lane::reduce), BugError);
  EXPECT_EQ(traffic_name(Group::shard, Lane::gather), "shard");
  EXPECT_EQ(traffic_name(Group::tensor, Lane::compute), "control") << "norms and losses";
}

TEST(Groups, GiveEveryLaneItsOwnMessages) {
  const mpi::Communicator world = mpi::Communicator::from(MPI_COMM_WORLD);
  Groups groups(world, {.shard = world.size()});
  for (const Lane lane : {Lane::gather, Lane::reduce}) groups.add(Group::shard, lane, world.size());
  // A message on one lane is not received on another.
  const mpi::Communicator& gather = groups.at(Group::shard, Lane::gather);
  const mpi::Communicator& reduce = groups.at(Group::shard, Lane::reduce);
  const int next = (world.rank() + 1) % world.size();
  const int a = 1;
  const int b = 2;
  MPI_Request sends[2];
  MPI_Isend(&a, 1, MPI_INT, next, 0, gather.handle(), &sends[0]);
  MPI_Isend(&b, 1, MPI_INT, next, 0, reduce.handle(), &sends[1]);
  int got = 0;
  MPI_Recv(&got, 1, MPI_INT, MPI_ANY_SOURCE, 0, reduce.handle(), MPI_STATUS_IGNORE);
  EXPECT_EQ(got, 2);
  MPI_Recv(&got, 1, MPI_INT, MPI_ANY_SOURCE, 0, gather.handle(), MPI_STATUS_IGNORE);
  EXPECT_EQ(got, 1);
  MPI_Waitall(2, sends, MPI_STATUSES_IGNORE);
}

TEST(Groups, RefuseAMeshThatDoesNotFitTheRanks) {
  const mpi::Communicator world = mpi::Communicator::from(MPI_COMM_WORLD);
  try {
    const Groups groups(world, {.replicate = 2, .shard = world.size()});
    ADD_FAILURE() << "no error";
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("needs " + std::to_string(2 * world.size()) + " ranks"));
    EXPECT_THAT(error.what(), testing::HasSubstr("has " + std::to_string(world.size())));
  }
}

}  // namespace
}  // namespace trireme::comm
