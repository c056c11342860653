// SPDX-License-Identifier: Apache-2.0
//
// Collectives of tensors on a GPU against the same over MPI in the host's memory.
//
// ranks: 1 2 4
//
// labels: gpu
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/ones.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <future>
#include <memory>
#include <numeric>
#include <vector>

#include "support/nccl_ranks.hpp"
#include "terms.hpp"
#include "trireme/comm/collectives.hpp"
#include "trireme/comm/device_transports.hpp"
#include "trireme/comm/transport.hpp"
#include "trireme/device/buffer.hpp"
#include "trireme/device/gpus.hpp"
#include "trireme/mpi/communicator.hpp"
#include "trireme/mpi/flight.hpp"
#include "trireme/mpi/wait.hpp"

namespace trireme::comm {
namespace {

using Floats = std::vector<float>;

at::Tensor copied_to(c10::Device device, const Floats& values) {
  return at::from_blob(const_cast<float*>(values.data()), {static_cast<std::int64_t>(values.size())}, at::kFloat)
      .to(device, at::kFloat, /*non_blocking=*/false, /*copy=*/true);
}

Floats on_host(const at::Tensor& tensor) {
  const at::Tensor here = tensor.to(at::kCPU);
  return {here.const_data_ptr<float>(), here.const_data_ptr<float>() + here.numel()};
}

struct Result {
  Floats gathered, reduced, added, rounded, summed, summed_rounded, exchanged;
};

constexpr std::int64_t shard = 10'007;

/// Every collective once: in the host's memory, or on `device`.
Result run(Collectives& collectives, c10::Device device) {
  const int rank = collectives.rank(), size = collectives.size();
  Result result;
  const auto whole = [&] { return copied_to(device, test::terms(rank, size * shard)); };
  const auto mine = [&] { return copied_to(device, test::terms(rank + 100, shard)); };
  at::Tensor from = mine(), to = at::empty({size * shard}, from.options());
  collectives.all_gather(from.const_data_ptr(), to.mutable_data_ptr(), shard, DType::fp32);
  result.gathered = on_host(to);
  const auto reduce = [&](DType wire, bool accumulate) {
    const at::Tensor terms = whole();
    at::Tensor sum = mine();
    collectives.reduce_scatter(terms.const_data_ptr<float>(), sum.mutable_data_ptr<float>(), shard, wire, accumulate);
    return on_host(sum);
  };
  result.reduced = reduce(DType::fp32, false);
  result.added = reduce(DType::fp32, true);
  result.rounded = reduce(DType::bf16, true);
  for (const DType wire : {DType::fp32, DType::bf16}) {
    at::Tensor data = whole();
    collectives.all_reduce(data.mutable_data_ptr<float>(), data.numel() - 3, wire);
    (wire == DType::fp32 ? result.summed : result.summed_rounded) = on_host(data);
  }
  // From rank a to rank b: nothing from the first to the last, else more than fits a small staging memory.
  const auto count = [&](int a, int b) { return a == 0 && b == size - 1 && size > 1 ? 0 : shard / (1 + a + 2 * b); };
  std::vector<std::int64_t> sent, received;
  for (int other = 0; other < size; ++other) {
    sent.push_back(count(rank, other));
    received.push_back(count(other, rank));
  }
  const auto total = [](const std::vector<std::int64_t>& counts) {
    return std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
  };
  const at::Tensor out = copied_to(device, test::terms(rank + 200, total(sent)));
  at::Tensor in = at::empty({total(received)}, out.options());
  collectives.all_to_all(out.const_data_ptr(), sent, in.mutable_data_ptr(), received, DType::fp32);
  result.exchanged = on_host(in);
  return result;
}

void expect_near(const Floats& values, const Floats& expected, float tolerance, const char* what) {
  ASSERT_EQ(values.size(), expected.size()) << what;
  for (std::size_t i = 0; i < values.size(); ++i)
    ASSERT_NEAR(values[i], expected[i], tolerance * (1 + std::abs(expected[i]))) << what << " at " << i;
}

void expect_equal(const Result& result, const Result& expected, float tolerance) {
  expect_near(result.gathered, expected.gathered, 0, "all_gather");
  expect_near(result.reduced, expected.reduced, tolerance, "reduce_scatter");
  expect_near(result.added, expected.added, tolerance, "reduce_scatter, added");
  expect_near(result.rounded, expected.rounded, tolerance, "reduce_scatter, bf16 on the wire");
  expect_near(result.summed, expected.summed, tolerance, "all_reduce");
  expect_near(result.exchanged, expected.exchanged, 0, "all_to_all");
  expect_near(result.summed_rounded, expected.summed_rounded, tolerance, "all_reduce, bf16 on the wire");
}

class DeviceCollectives : public testing::Test {
 protected:
  void SetUp() override {
    const device::GpuProbe probe = device::probe_gpus();
    if (probe.gpus.empty()) GTEST_SKIP() << probe.reason;
    gpus_ = static_cast<int>(probe.gpus.size());
    device_ = device::use_gpu(world_.rank() % gpus_);
  }
  std::unique_ptr<Collectives> open(std::unique_ptr<Transport> transport, const Services& services = {}) {
    return std::make_unique<Collectives>(std::move(transport), "shard", "shard/reduce", services);
  }
  Result expected() { return run(*open(make_transport(world_, {}, TransportChoice::mpi)), at::kCPU); }

  mpi::Communicator world_ = mpi::Communicator::from(MPI_COMM_WORLD);
  c10::Device device_ = c10::Device(c10::DeviceType::CPU);
  int gpus_ = 0;
};

TEST_F(DeviceCollectives, StagedGiveTheBitsOfMpi) {
  const auto staged = open(make_device_transport(world_, device_, DeviceLink::staged, {}, TransportChoice::mpi));
  expect_equal(run(*staged, device_), expected(), 0);
}

TEST_F(DeviceCollectives, StagedGiveTheBitsOfMpiPieceByPiece) {
  const auto staged = open(staged_transport(make_transport(world_, {}, TransportChoice::mpi), device_, Bytes{4096}));
  if (world_.size() == 1) GTEST_SKIP() << "nothing is staged";
  expect_equal(run(*staged, device_), expected(), 0);
}

TEST_F(DeviceCollectives, OfNcclAgreeWithMpi) {
  if (!trireme::test::nccl_ranks_fit(world_)) GTEST_SKIP() << trireme::test::no_nccl_between;
  const auto nccl = open(make_device_transport(world_, device_, DeviceLink::nccl, {}));
  expect_equal(run(*nccl, device_), expected(), 1e-6F);
}

TEST_F(DeviceCollectives, OfNcclSumInBf16WhereverDataBeginAndEnd) {
  if (!trireme::test::nccl_ranks_fit(world_)) GTEST_SKIP() << trireme::test::no_nccl_between;
  const auto nccl = open(make_device_transport(world_, device_, DeviceLink::nccl, {}));
  const auto mpi = open(make_transport(world_, {}, TransportChoice::mpi));
  for (const std::int64_t begin : {0, 1, 4})
    for (const std::int64_t elements : {1, 7, 8, 33, 4096, 100'003}) {
      const auto sum = [&](Collectives& over, c10::Device device) {
        const at::Tensor data = copied_to(device, test::terms(world_.rank(), begin + elements + 9));
        over.all_reduce(data.mutable_data_ptr<float>() + begin, elements, DType::bf16);
        return on_host(data);
      };
      expect_near(sum(*nccl, device_), sum(*mpi, at::kCPU), 0, "all_reduce, bf16 on the wire");
    }
}

TEST_F(DeviceCollectives, OfNcclSumInBf16WithTwoBuffersOfBf16) {
  if (world_.size() == 1) GTEST_SKIP() << "one rank sums nothing";
  if (!trireme::test::nccl_ranks_fit(world_)) GTEST_SKIP() << trireme::test::no_nccl_between;
  const auto nccl = open(make_device_transport(world_, device_, DeviceLink::nccl, {}));
  constexpr std::int64_t elements = 1 << 20;
  const at::Tensor data = copied_to(device_, Floats(elements, 1.0F));
  device::reset_peaks();
  const auto of_communication = [](const auto& bytes) { return bytes[device::Category::communication]; };
  const Bytes before = of_communication(device::memory_use()[device::Space::device].current);
  nccl->all_reduce(data.mutable_data_ptr<float>(), elements, DType::bf16);
  const Bytes most = of_communication(device::memory_use()[device::Space::device].peak) - before;
  EXPECT_LE(most.value, 2 * 2 * elements + (1 << 14));
  EXPECT_EQ(data.min().item<float>(), static_cast<float>(world_.size()));
}

TEST_F(DeviceCollectives, OfNcclAreWatchedUntilTheyAreDone) {
  if (!trireme::test::nccl_ranks_fit(world_)) GTEST_SKIP() << trireme::test::no_nccl_between;
  // The transport itself: a group of one rank, too, talks to NCCL here.
  const mpi::Deadline deadline;
  mpi::FlightRecorder recorder;
  mpi::FlightLane& lane = recorder.add_lane("shard/gather");
  const auto nccl = nccl_transport(world_, device_, deadline);
  const at::Tensor from = copied_to(device_, test::terms(world_.rank(), shard));
  const at::Tensor to = at::empty({world_.size() * shard}, from.options());
  for (int i = 0; i < 3; ++i) {
    mpi::Wait wait(lane.begin("all_gather", {4 * shard}), deadline, recorder);
    nccl->all_gather(static_cast<const std::byte*>(from.const_data_ptr()),
                     static_cast<std::byte*>(to.mutable_data_ptr()),
                     {.total = 4 * shard * world_.size(), .part = 4 * shard}, wait);
    EXPECT_TRUE(nccl->ends_later(lane, wait.operation(), deadline, recorder));
  }
  mpi::Wait wait(recorder.add_lane("test").begin("wait", {0}), deadline, recorder);
  wait.until([&] { return recorder.in_flight().size() == 1; }, [] { return std::string("the watch"); });
  EXPECT_TRUE(to.narrow(0, world_.rank() * shard, shard).equal(from));
}

TEST_F(DeviceCollectives, OfNcclThatTakeTooLongAreNamed) {
  if (!trireme::test::nccl_ranks_fit(world_)) GTEST_SKIP() << trireme::test::no_nccl_between;
  std::promise<std::string> said;
  const mpi::Deadline deadline{.timeout_seconds = 0.2,
                               .on_hang = [&](const std::string& line) { said.set_value(line); }};
  mpi::FlightRecorder recorder;
  mpi::FlightLane& lane = recorder.add_lane("shard/gather");
  const auto nccl = nccl_transport(world_, device_, mpi::Deadline{});
  const at::Tensor from = copied_to(device_, test::terms(world_.rank(), shard));
  const at::Tensor to = at::empty({world_.size() * shard}, from.options());
  const at::Tensor busy = at::ones({8192, 8192}, from.options());
  for (int i = 0; i < 100; ++i) (void)busy.matmul(busy);  // seconds of work before it
  mpi::Wait wait(lane.begin("all_gather", {4 * shard}), deadline, recorder);
  nccl->all_gather(static_cast<const std::byte*>(from.const_data_ptr()), static_cast<std::byte*>(to.mutable_data_ptr()),
                   {.total = 4 * shard * world_.size(), .part = 4 * shard}, wait);
  EXPECT_TRUE(nccl->ends_later(lane, wait.operation(), deadline, recorder));
  std::future<std::string> line = said.get_future();
  ASSERT_EQ(line.wait_for(std::chrono::seconds(30)), std::future_status::ready);
  EXPECT_THAT(line.get(), testing::AllOf(testing::HasSubstr("all_gather #1"), testing::HasSubstr("shard/gather")));
  EXPECT_TRUE(to.narrow(0, world_.rank() * shard, shard).equal(from)) << "it was only slow";
}

TEST_F(DeviceCollectives, ChargeTheirMemoryToTheGpu) {
  const auto before = device::memory_use()[device::Space::device].current[device::Category::workspace];
  const device::ChargeTo charge(device::Category::workspace);
  const at::Tensor tensor = at::empty({1 << 20}, at::TensorOptions(at::kFloat).device(device_));
  const auto with = device::memory_use()[device::Space::device].current;
  EXPECT_GE((with[device::Category::workspace] - before).value, 4 << 20);
  device::charge_to(tensor, {device::Category::activations});
  EXPECT_GE(device::memory_use()[device::Space::device].current[device::Category::activations].value, 4 << 20);
}

TEST_F(DeviceCollectives, BuffersOfTheHostAreCopiedWithoutAStop) {
  const at::Tensor slab =
      device::buffer(device::Category::optimizer, 1 << 20, DType::fp32, device::Space::host, device_);
  EXPECT_TRUE(slab.is_cpu());
  EXPECT_EQ(slab.abs().max().item<float>(), 0.0F);
  const at::Tensor there =
      device::buffer(device::Category::optimizer, 1 << 20, DType::fp32, device::Space::device, device_);
  EXPECT_TRUE(there.is_cuda());
  slab.fill_(3);
  there.copy_(slab, /*non_blocking=*/true);
  EXPECT_EQ(there.min().item<float>(), 3.0F);
}

}  // namespace
}  // namespace trireme::comm
