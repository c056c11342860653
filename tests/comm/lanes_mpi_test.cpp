// SPDX-License-Identifier: Apache-2.0
//
// ranks: 4
#include <gtest/gtest.h>

#include <thread>

#include "trireme/comm/collectives.hpp"
#include "trireme/comm/counters.hpp"
#include "trireme/comm/groups.hpp"
#include "trireme/mpi/flight.hpp"

namespace trireme::comm {
namespace {

using mesh::Group;
using schedule::Lane;

constexpr int rounds = 60;

std::int64_t count_of(int round) { return 1 + (round * 977) % 6000; }

// Gathers shards that depend on the round and looks at all of them.
int wrong_gathers(Collectives& shard) {
  int wrong = 0;
  for (int round = 0; round < rounds; ++round) {
    const std::int64_t count = count_of(round);
    const std::vector<float> mine(static_cast<std::size_t>(count), static_cast<float>(100 * round + shard.rank()));
    std::vector<float> whole(static_cast<std::size_t>(count * shard.size()));
    shard.all_gather(mine.data(), whole.data(), count, DType::fp32);
    for (int rank = 0; rank < shard.size(); ++rank)
      for (std::int64_t i = 0; i < count; ++i)
        wrong += whole[static_cast<std::size_t>(rank * count + i)] != static_cast<float>(100 * round + rank);
  }
  return wrong;
}

// Hybrid sharding's reduction: over the shard axis, then over the replicas. Integers: the order does not matter.
int wrong_reductions(Collectives& shard, Collectives& replicate) {
  int wrong = 0;
  for (int round = 0; round < rounds; ++round) {
    const std::int64_t count = count_of(round + 7);
    const std::vector<float> whole(static_cast<std::size_t>(count * shard.size()),
                                   static_cast<float>(round + 10 * shard.rank() + 1000 * replicate.rank()));
    std::vector<float> mine(static_cast<std::size_t>(count));
    shard.reduce_scatter(whole.data(), mine.data(), count, DType::fp32, false);
    replicate.all_reduce(mine.data(), count, DType::fp32);
    const float expected = 4.0F * static_cast<float>(round) + 2.0F * 10.0F + 2.0F * 1000.0F;
    for (const float value : mine) wrong += value != expected;
  }
  return wrong;
}

class Lanes : public testing::TestWithParam<TransportChoice> {};
INSTANTIATE_TEST_SUITE_P(, Lanes, testing::Values(TransportChoice::mpi, TransportChoice::shared_memory),
                         [](const auto& info) { return info.param == TransportChoice::mpi ? "Mpi" : "SharedMemory"; });

TEST_P(Lanes, RunAtOnceWithoutMeetingEachOther) {
  const mpi::Communicator world = mpi::Communicator::from(MPI_COMM_WORLD);
  ASSERT_EQ(world.size(), 4);
  Groups groups(world, {.replicate = 2, .shard = 2});
  Counters counters;
  mpi::FlightRecorder recorder;
  const Services services{.counters = &counters, .recorder = &recorder};
  const auto open = [&](Group group, Lane lane) {
    groups.add(group, lane, group == Group::dp ? 4 : 2);
    return make_collectives(groups.at(group, lane), group, lane, services, GetParam());
  };
  const auto gather = open(Group::shard, Lane::gather);
  const auto reduce = open(Group::shard, Lane::reduce);
  const auto replicas = open(Group::replicate, Lane::reduce);
  const auto control = open(Group::dp, Lane::compute);

  int gathers = -1;
  int reductions = -1;
  {
    const std::jthread gather_lane([&] { gathers = wrong_gathers(*gather); });
    const std::jthread reduce_lane([&] { reductions = wrong_reductions(*reduce, *replicas); });
    for (int round = 0; round < rounds; ++round) {
      std::vector<double> values{static_cast<double>(control->rank())};
      control->sum(values);
      EXPECT_EQ(values.front(), 6.0);
    }
  }
  EXPECT_EQ(gathers, 0);
  EXPECT_EQ(reductions, 0);
  const TrafficTable table = counters.snapshot();
  EXPECT_EQ(table.at("shard").at("all_gather").calls, rounds);
  EXPECT_EQ(table.at("shard").at("reduce_scatter").calls, rounds);
  EXPECT_EQ(table.at("replicate").at("all_reduce").calls, rounds);
  EXPECT_EQ(table.at("control").at("sum"), (Traffic{.bytes = {3 * 8 * rounds}, .calls = rounds}));
  EXPECT_TRUE(recorder.in_flight().empty());
}

}  // namespace
}  // namespace trireme::comm
