// SPDX-License-Identifier: Apache-2.0
//
// ranks: 2 3 4
//
// Memory that the ranks of a node have mapped: gathers into one memory, sums read from the others', and what happens
// where a rank can give none.
#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <memory>
#include <optional>
#include <vector>

#include "support/resource_limit.hpp"
#include "trireme/comm/collectives.hpp"
#include "trireme/comm/groups.hpp"
#include "trireme/comm/transport.hpp"
#include "trireme/device/buffer.hpp"
#include "trireme/mpi/communicator.hpp"

namespace trireme::comm {
namespace {

constexpr std::int64_t own_part = (1 << 18) + 5;  // more than a huge page of all, and not whole pages

class SharedWindows : public testing::Test {
 protected:
  [[nodiscard]] std::unique_ptr<Collectives> open(TransportChoice choice = TransportChoice::shared_memory) const {
    return make_collectives(world_, mesh::Group::shard, schedule::Lane::gather, {}, choice);
  }
  [[nodiscard]] at::Tensor whole() const {
    return device::buffer(device::Category::communication, world_.size() * own_part, DType::fp32);
  }
  /// Lets the others go ahead, so that one of them changes what this rank still reads, if it may.
  void fall_behind(int round) const {
    if (round % world_.size() == world_.rank()) ::usleep(2000);
  }
  mpi::Communicator world_ = mpi::Communicator::from(MPI_COMM_WORLD);
};

/// Exact in bf16, too.
float value(int rank, int round) { return static_cast<float>(16 * round + rank); }

/// Whether every part has its rank's value of this round.
bool holds(const at::Tensor& whole, int ranks, int round) {
  for (int rank = 0; rank < ranks; ++rank)
    if (!whole.narrow(0, rank * own_part, own_part).eq(value(rank, round)).all().item<bool>()) return false;
  return true;
}

TEST_F(SharedWindows, AreFilledByAllRanksAndReadBeforeTheNextGather) {
  const auto collectives = open();
  at::Tensor mine = device::buffer(device::Category::communication, own_part, DType::fp32), all = whole();
  const void* const address = all.const_data_ptr();
  EXPECT_TRUE(collectives->add_window(all, WindowUse::gathered));
  EXPECT_EQ(all.const_data_ptr(), address);
  EXPECT_EQ(all.count_nonzero().item<std::int64_t>(), 0);
  for (int round = 0; round < 12; ++round) {
    mine.fill_(value(world_.rank(), round));
    collectives->all_gather(mine.const_data_ptr(), all.mutable_data_ptr(), own_part, DType::fp32);
    fall_behind(round);
    EXPECT_TRUE(holds(all, world_.size(), round)) << "round " << round;
  }
  // It is one memory.
  collectives->barrier();
  if (world_.rank() == 0) all[own_part].fill_(-7);
  collectives->barrier();
  EXPECT_EQ(all[own_part].item<float>(), -7);
  collectives->barrier();
}

TEST_F(SharedWindows, HoldPartsThatAreNotCopied) {
  const auto collectives = open();
  const std::int64_t elements = world_.size() * own_part;
  for (const DType type : {DType::fp32, DType::bf16}) {
    const at::Tensor all = collectives->common_memory(elements, type);
    ASSERT_TRUE(all.defined());
    ASSERT_EQ(all.numel(), elements);
    EXPECT_EQ(all.scalar_type(), device::to_torch(type));
    EXPECT_EQ(all.count_nonzero().item<std::int64_t>(), 0);
    collectives->barrier();
    at::Tensor mine = all.narrow(0, world_.rank() * own_part, own_part);
    for (int round = 0; round < 12; ++round) {
      fall_behind(round);
      mine.fill_(value(world_.rank(), round));
      collectives->all_gather(mine.const_data_ptr(), all.mutable_data_ptr(), own_part, type);
      EXPECT_TRUE(holds(all, world_.size(), round)) << "round " << round;
      collectives->barrier();  // all have read it
    }
    // Out of other memory it is a gather as any other.
    for (int round = 0; round < 12; ++round) {
      const at::Tensor elsewhere = at::full({own_part}, value(world_.rank(), -round), all.options());
      collectives->all_gather(elsewhere.const_data_ptr(), all.mutable_data_ptr(), own_part, type);
      EXPECT_TRUE(holds(all, world_.size(), -round)) << "round " << round;
      collectives->barrier();
    }
  }
  EXPECT_FALSE(open(TransportChoice::mpi)->common_memory(elements, DType::fp32).defined());
}

TEST_F(SharedWindows, AreNoHomeWhereOneRanksAddressesAreCounted) {
  const auto collectives = open();
  std::optional<trireme::test::ResourceLimit> addresses;
  if (world_.rank() == world_.size() - 1) addresses.emplace(RLIMIT_AS, rlim_t{1} << 46);
  EXPECT_FALSE(collectives->common_memory(world_.size() * own_part, DType::fp32).defined());
  const at::Tensor all = whole();
  EXPECT_TRUE(collectives->add_window(all, WindowUse::gathered)) << "that takes no more addresses than the buffer has";
}

TEST_F(SharedWindows, GiveTheSumsOfMessagesToTheBit) {
  const auto with = open(), without = open(TransportChoice::mpi);
  at::Tensor terms = whole(), sum = device::buffer(device::Category::communication, own_part, DType::fp32);
  with->add_window(terms, WindowUse::terms);
  for (int round = 0; round < 12; ++round) {
    const bool accumulate = round % 3 == 1;
    const DType wire = round % 4 == 3 ? DType::bf16 : DType::fp32;
    const at::Tensor drawn = at::arange(terms.numel(), at::kFloat).add_(1 + round).mul_(0.1F + world_.rank()).sin_();
    at::Tensor expected = sum.clone();
    without->reduce_scatter(drawn.const_data_ptr<float>(), expected.mutable_data_ptr<float>(), own_part, wire,
                            accumulate);
    terms.copy_(drawn);
    fall_behind(round);
    with->reduce_scatter(terms.const_data_ptr<float>(), sum.mutable_data_ptr<float>(), own_part, wire, accumulate);
    EXPECT_TRUE(sum.equal(expected)) << "round " << round;
    terms.fill_(1e9F);  // the others have read it
  }
}

TEST_F(SharedWindows, OutliveNeitherTheirTransportNorTheirMemory) {
  auto collectives = open();
  at::Tensor all = whole();
  collectives->add_window(all, WindowUse::gathered);
  collectives.reset();
  all.fill_(1);  // still this rank's
  all = at::Tensor();
  const auto again = open();
  all = whole();
  again->add_window(all, WindowUse::terms);
  EXPECT_EQ(all.count_nonzero().item<std::int64_t>(), 0);
  all = at::Tensor();  // before the transport
  auto third = open();
  all = third->common_memory(world_.size() * own_part, DType::fp32);
  third.reset();
  all.narrow(0, world_.rank() * own_part, own_part).fill_(1);  // still the node's
}

TEST_F(SharedWindows, AreLeftOutOnAllRanksWhereOneCannotOpenThem) {
  const auto collectives = open();
  at::Tensor mine = device::buffer(device::Category::communication, own_part, DType::fp32), all = whole();
  all.fill_(3);
  {
    std::optional<trireme::test::ResourceLimit> files;
    if (world_.rank() == world_.size() - 1) files.emplace(RLIMIT_NOFILE, 3);
    EXPECT_FALSE(collectives->add_window(all, WindowUse::gathered));
    EXPECT_FALSE(collectives->add_window(all, WindowUse::terms));
    EXPECT_FALSE(collectives->common_memory(all.numel(), DType::fp32).defined());
  }
  EXPECT_TRUE(all.eq(3).all().item<bool>()) << "the memory is as it was";
  for (int round = 0; round < 3; ++round) {
    mine.fill_(value(world_.rank(), round));
    collectives->all_gather(mine.const_data_ptr(), all.mutable_data_ptr(), own_part, DType::fp32);
    if (world_.rank() == 0) all.fill_(-1);  // its own alone
    EXPECT_EQ(holds(all, world_.size(), round), world_.rank() != 0);
  }
}

}  // namespace
}  // namespace trireme::comm
