// SPDX-License-Identifier: Apache-2.0
//
// ranks: 2
// labels: slow
//
// Buffers of more than 2^31 bytes, where MPI's int counts end. Their pages are all the same few, so that they cost no
// memory: every part of the data repeats with the period of these pages.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include "trireme/comm/collectives.hpp"
#include "trireme/comm/groups.hpp"
#include "trireme/mpi/communicator.hpp"

namespace trireme::comm {
namespace {

using mesh::Group;
using schedule::Lane;

constexpr std::int64_t period_bytes = 8 << 20;
constexpr std::int64_t period = period_bytes / 4;

// `periods` times the same floats, one after another in the address space.
class Repeated {
 public:
  explicit Repeated(std::int64_t periods) : bytes_(static_cast<std::size_t>(periods * period_bytes)) {
    const int file = memfd_create("trireme-test", 0);
    EXPECT_EQ(ftruncate(file, period_bytes), 0);
    memory_ = static_cast<std::byte*>(mmap(nullptr, bytes_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    for (std::int64_t i = 0; i < periods; ++i)
      EXPECT_NE(mmap(memory_ + i * period_bytes, period_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file, 0),
                MAP_FAILED);
    close(file);
  }
  Repeated(const Repeated&) = delete;
  Repeated& operator=(const Repeated&) = delete;
  ~Repeated() { munmap(memory_, bytes_); }

  [[nodiscard]] float* data() const { return reinterpret_cast<float*>(memory_); }

 private:
  std::size_t bytes_;
  std::byte* memory_ = nullptr;
};

constexpr std::int64_t part_periods = 138;  // of 2 ranks: 2.16 GiB in all
constexpr std::int64_t part = part_periods * period;
static_assert(2 * 4 * part > (std::int64_t{1} << 31));

class LargeBuffers : public testing::TestWithParam<TransportChoice> {};
INSTANTIATE_TEST_SUITE_P(, LargeBuffers, testing::Values(TransportChoice::mpi, TransportChoice::shared_memory),
                         [](const auto& info) { return info.param == TransportChoice::mpi ? "Mpi" : "SharedMemory"; });

TEST_P(LargeBuffers, AreReducedBeyondTheRangeOfInt) {
  const mpi::Communicator world = mpi::Communicator::from(MPI_COMM_WORLD);
  const auto collectives = make_collectives(world, Group::shard, Lane::reduce, {}, GetParam());
  const Repeated whole(2 * part_periods);
  const Repeated shard(part_periods);
  for (std::int64_t i = 0; i < period; ++i) whole.data()[i] = static_cast<float>(i + world.rank());
  collectives->reduce_scatter(whole.data(), shard.data(), part, DType::fp32, false);
  std::int64_t wrong = 0;
  for (std::int64_t i = 0; i < period; ++i) wrong += shard.data()[i] != static_cast<float>(2 * i + 1);
  EXPECT_EQ(wrong, 0);
}

TEST_P(LargeBuffers, AreGatheredBeyondTheRangeOfInt) {
  const mpi::Communicator world = mpi::Communicator::from(MPI_COMM_WORLD);
  const auto collectives = make_collectives(world, Group::shard, Lane::gather, {}, GetParam());
  const Repeated shard(part_periods);
  const Repeated whole(2 * part_periods);
  for (std::int64_t i = 0; i < period; ++i) shard.data()[i] = static_cast<float>(i);
  collectives->all_gather(shard.data(), whole.data(), part, DType::fp32);
  std::int64_t wrong = 0;
  for (std::int64_t i = 0; i < period; ++i) wrong += whole.data()[i] != static_cast<float>(i);
  EXPECT_EQ(wrong, 0);
}

}  // namespace
}  // namespace trireme::comm
