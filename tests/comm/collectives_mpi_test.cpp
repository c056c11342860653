// SPDX-License-Identifier: Apache-2.0
//
// ranks: 1 2 3 4
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <ctime>
#include <string>
#include <thread>

#include "every_transport.hpp"
#include "terms.hpp"
#include "trireme/comm/collectives.hpp"
#include "trireme/comm/counters.hpp"
#include "trireme/comm/groups.hpp"
#include "trireme/comm/transport.hpp"
#include "trireme/mpi/communicator.hpp"
#include "trireme/mpi/flight.hpp"

namespace trireme::comm {
namespace {

using mesh::Group;
using schedule::Lane;
using test::ordered_sum;
using test::term;
using test::terms;

constexpr std::int64_t some_counts[] = {0, 1, 7, 64, 1000, 40'001};

double cpu_seconds() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

INSTANTIATE_TEST_SUITE_P(, EveryTransport, every_variant, name_of);

TEST_P(EveryTransport, AllGatherPutsEveryShardInRankOrder) {
  const auto collectives = open();
  for (const std::int64_t count : some_counts) {
    const std::vector<float> shard = terms(rank(), count);
    std::vector<float> whole(static_cast<std::size_t>(count * size()), -1.0F);
    collectives->all_gather(shard.data(), whole.data(), count, DType::fp32);

    std::vector<float> expected(whole.size());
    MPI_Allgather(shard.data(), static_cast<int>(count), MPI_FLOAT, expected.data(), static_cast<int>(count), MPI_FLOAT,
                  world_.handle());
    EXPECT_EQ(whole, expected) << count;
  }
}

TEST_P(EveryTransport, AllGatherWorksInPlaceAndInBf16) {
  const auto collectives = open();
  for (const std::int64_t count : some_counts) {
    std::vector<std::uint16_t> whole(static_cast<std::size_t>(count * size()), 0xffff);
    std::uint16_t* const mine = whole.data() + rank() * count;
    for (std::int64_t i = 0; i < count; ++i) mine[i] = static_cast<std::uint16_t>(100 * rank() + i);
    collectives->all_gather(mine, whole.data(), count, DType::bf16);
    bool right = true;
    for (int r = 0; r < size(); ++r)
      for (std::int64_t i = 0; i < count; ++i)
        right &= whole[static_cast<std::size_t>(r * count + i)] == static_cast<std::uint16_t>(100 * r + i);
    EXPECT_TRUE(right) << count;
  }
}

TEST_P(EveryTransport, ReduceScatterSumsInRankOrderToTheBit) {
  const auto collectives = open();
  for (const DType wire : {DType::fp32, DType::bf16}) {
    for (const std::int64_t count : some_counts) {
      const std::vector<float> whole = terms(rank(), count * size());
      std::vector<float> shard(static_cast<std::size_t>(count), -1.0F);
      collectives->reduce_scatter(whole.data(), shard.data(), count, wire, false);
      std::vector<float> expected;
      for (std::int64_t i = 0; i < count; ++i) expected.push_back(ordered_sum(size(), rank() * count + i, wire));
      EXPECT_EQ(shard, expected) << count;
    }
  }
}

TEST_P(EveryTransport, ReduceScatterAgreesWithMpiInDoublePrecision) {
  const auto collectives = open();
  const std::int64_t count = 4099;
  const std::vector<float> whole = terms(rank(), count * size());
  std::vector<float> shard(static_cast<std::size_t>(count));
  collectives->reduce_scatter(whole.data(), shard.data(), count, DType::fp32, false);

  const std::vector<double> exact(whole.begin(), whole.end());
  std::vector<double> sum(shard.size());
  MPI_Reduce_scatter_block(exact.data(), sum.data(), static_cast<int>(count), MPI_DOUBLE, MPI_SUM, world_.handle());
  for (std::size_t i = 0; i < shard.size(); ++i) EXPECT_NEAR(shard[i], sum[i], 1e-3) << i;
}

TEST_P(EveryTransport, ReduceScatterAddsToWhatIsThereWhenItAccumulates) {
  const auto collectives = open();
  for (const DType wire : {DType::fp32, DType::bf16}) {
    const std::int64_t count = 5001;
    const std::vector<float> whole = terms(rank(), count * size());
    std::vector<float> shard(static_cast<std::size_t>(count), 0.25F);
    collectives->reduce_scatter(whole.data(), shard.data(), count, wire, true);
    std::vector<float> expected;
    for (std::int64_t i = 0; i < count; ++i) expected.push_back(0.25F + ordered_sum(size(), rank() * count + i, wire));
    EXPECT_EQ(shard, expected);
  }
}

TEST_P(EveryTransport, ReduceScatterWorksInPlaceAndLeavesTheRestAlone) {
  const auto collectives = open();
  for (const DType wire : {DType::fp32, DType::bf16}) {
    const std::int64_t count = 3000;
    std::vector<float> expected = terms(rank(), count * size());
    std::vector<float> whole = expected;
    for (std::int64_t i = rank() * count; i < (rank() + 1) * count; ++i)
      expected[static_cast<std::size_t>(i)] = ordered_sum(size(), i, wire);
    collectives->reduce_scatter(whole.data(), whole.data() + rank() * count, count, wire, false);
    EXPECT_EQ(whole, expected);
  }
}

TEST_P(EveryTransport, AllReduceGivesAllRanksTheSameBitsForAnyCount) {
  const auto collectives = open();
  for (const DType wire : {DType::fp32, DType::bf16}) {
    for (const std::int64_t count : some_counts) {
      std::vector<float> data = terms(rank(), count);
      collectives->all_reduce(data.data(), count, wire);
      std::vector<float> expected;
      for (std::int64_t i = 0; i < count; ++i) {
        const float sum = ordered_sum(size(), i, wire);
        expected.push_back(wire == DType::bf16 && size() > 1 ? test::rounded_to_bf16(sum) : sum);
      }
      EXPECT_EQ(data, expected) << count;
    }
  }
}

TEST_P(EveryTransport, SumGivesAllRanksTheSameBits) {
  const auto collectives = open();
  std::vector<double> values;
  for (int i = 0; i < 5; ++i) values.push_back(static_cast<double>(term(rank(), i)) / 3.0);
  collectives->sum(values);
  for (int i = 0; i < 5; ++i) {
    double expected = 0;
    for (int r = 0; r < size(); ++r) expected += static_cast<double>(term(r, i)) / 3.0;
    EXPECT_EQ(values[static_cast<std::size_t>(i)], expected);
  }
}

TEST_P(EveryTransport, GatherWordsGivesEveryRanksWordInOrder) {
  const auto collectives = open();
  const std::vector<std::uint64_t> words =
      collectives->gather_words(0x1234567800000000ULL + static_cast<std::uint64_t>(rank()));
  ASSERT_EQ(words.size(), static_cast<std::size_t>(size()));
  for (int r = 0; r < size(); ++r)
    EXPECT_EQ(words[static_cast<std::size_t>(r)], 0x1234567800000000ULL + static_cast<std::uint64_t>(r));
}

TEST_P(EveryTransport, BroadcastCopiesTheRootsBytes) {
  const auto collectives = open();
  for (int root = 0; root < size(); ++root) {
    for (const std::size_t count : {std::size_t{0}, std::size_t{1}, std::size_t{100'003}}) {
      std::vector<std::byte> bytes(count, static_cast<std::byte>(rank() + 1));
      collectives->broadcast(bytes, root);
      EXPECT_EQ(bytes, std::vector<std::byte>(count, static_cast<std::byte>(root + 1)));
    }
  }
}

TEST_P(EveryTransport, BarrierReturnsAfterTheLastRankCame) {
  const auto collectives = open();
  for (int late = 0; late < size(); ++late) {
    if (rank() == late) std::this_thread::sleep_for(std::chrono::milliseconds(20));
    // The clock is the node's, the same for all ranks.
    std::int64_t came = mpi::Clock::now().time_since_epoch().count();
    collectives->barrier();
    std::int64_t left = mpi::Clock::now().time_since_epoch().count();
    MPI_Allreduce(MPI_IN_PLACE, &came, 1, MPI_INT64_T, MPI_MAX, world_.handle());
    MPI_Allreduce(MPI_IN_PLACE, &left, 1, MPI_INT64_T, MPI_MIN, world_.handle());
    EXPECT_GE(left, came);
  }
}

TEST_P(EveryTransport, WaitsWithoutKeepingTheCoreBusy) {
  const auto collectives = open();
  collectives->barrier();
  if (rank() == 0) std::this_thread::sleep_for(std::chrono::milliseconds(300));
  const double cpu = cpu_seconds();
  const auto began = mpi::Clock::now();
  collectives->barrier();
  const std::chrono::duration<double> waited = mpi::Clock::now() - began;  // a busy machine lets some wait longer
  EXPECT_LT(cpu_seconds() - cpu, 0.03 + 0.1 * waited.count());
}

TEST_P(EveryTransport, WakesTheRanksThatSleepSoonAfterTheLastOneCame) {
  const auto collectives = open();
  const auto began = mpi::Clock::now();
  for (int i = 0; i < 100; ++i) {
    if (rank() == i % size()) std::this_thread::sleep_for(std::chrono::milliseconds(2));
    collectives->barrier();
  }
  EXPECT_LT(mpi::Clock::now() - began, std::chrono::seconds(60));
}

TEST_P(EveryTransport, ManyCallsOfChangingSizesStayInStep) {
  const auto collectives = open();
  for (int round = 0; round < 200; ++round) {
    const std::int64_t count = (round * 37) % 1500;
    std::vector<float> data = terms(rank() + round, count);
    collectives->all_reduce(data.data(), count, DType::fp32);
    for (const std::int64_t i : {std::int64_t{0}, count / 2, count - 1}) {
      if (i < 0 || i >= count) continue;
      float expected = term(round, i);
      for (int r = 1; r < size(); ++r) expected += term(r + round, i);
      EXPECT_EQ(data[static_cast<std::size_t>(i)], expected) << round << " " << i;
    }
  }
}

TEST_P(EveryTransport, CountsWhatABandwidthOptimalAlgorithmSends) {
  Counters counters;
  const auto collectives = open({.counters = &counters});
  std::vector<float> whole(static_cast<std::size_t>(10 * size()));
  collectives->all_gather(whole.data() + 10 * rank(), whole.data(), 10, DType::fp32);
  collectives->reduce_scatter(whole.data(), whole.data() + 10 * rank(), 10, DType::bf16, false);
  collectives->all_reduce(whole.data(), 7, DType::fp32);
  collectives->barrier();
  const std::int64_t others = size() - 1;
  const std::int64_t padded_share = (7 + size() - 1) / size();
  const TrafficTable expected{{"shard",
                               {{"all_gather", {.bytes = {40 * others}, .calls = 1}},
                                {"reduce_scatter", {.bytes = {20 * others}, .calls = 1}},
                                {"all_reduce", {.bytes = {8 * padded_share * others}, .calls = 1}},
                                {"barrier", {.bytes = {0}, .calls = 1}}}}};
  EXPECT_EQ(counters.snapshot(), expected);
}

TEST_P(EveryTransport, ChargesItsStagingMemoryAndStaysWithinItsBound) {
  std::int64_t charged = 0;
  std::int64_t peak = 0;
  const auto charge = [&](std::size_t bytes) {
    charged += static_cast<std::int64_t>(bytes);
    peak = std::max(peak, charged);
    return std::shared_ptr<void>(nullptr, [&charged, bytes](void*) { charged -= static_cast<std::int64_t>(bytes); });
  };
  const StagingSource source{.allocate =
                                 [&](std::size_t bytes) {
                                   auto token = charge(bytes);
                                   return std::shared_ptr<std::byte[]>(new std::byte[bytes],
                                                                       [token](const std::byte* p) { delete[] p; });
                                 },
                             .charge = charge};
  {
    const auto collectives = open({.staging = source});
    const std::int64_t count = 300'000;
    const std::vector<float> whole(static_cast<std::size_t>(count * size()), 1.0F);
    std::vector<float> shard(static_cast<std::size_t>(count));
    collectives->reduce_scatter(whole.data(), shard.data(), count, DType::fp32, false);
    EXPECT_EQ(shard.front(), static_cast<float>(size()));
    if (size() > 1) {
      EXPECT_GT(peak, 0);
      // The smallest chunk, 1024 elements, sets a floor.
      EXPECT_LE(peak, std::max<std::int64_t>(GetParam().staging_bytes, 2 * 1024 * 4 * (size() - 1)));
    }
  }
  EXPECT_EQ(charged, 0);
}

TEST(MakeCollectives, TakesSharedMemoryWithinANode) {
  const mpi::Communicator world = mpi::Communicator::from(MPI_COMM_WORLD);
  const auto collectives = make_collectives(world, Group::shard, Lane::gather, {});
  EXPECT_EQ(collectives->transport_name(), world.size() > 1 ? "shared_memory" : "mpi");
}

}  // namespace
}  // namespace trireme::comm
