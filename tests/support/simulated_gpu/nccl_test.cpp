// SPDX-License-Identifier: Apache-2.0
//
// What src/comm/cuda owes NCCL and no collective's result shows: one thread at a time inside a communicator, and an end
// of a communicator that others never come to.
#include "support/simulated_gpu/cuda/nccl.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "support/jobs.hpp"
#include "support/simulated_gpu/engine.hpp"
#include "train/setup/environment.hpp"
#include "trireme/comm/device_transports.hpp"
#include "trireme/comm/transport.hpp"
#include "trireme/device/gpus.hpp"
#include "trireme/mpi/communicator.hpp"
#include "trireme/mpi/flight.hpp"
#include "trireme/mpi/wait.hpp"
#include "trireme/train/engine/job.hpp"

namespace trireme::comm {
namespace {

class NcclThreads : public testing::Test {
 protected:
  void SetUp() override {
    if (world_.size() > static_cast<int>(device::probe_gpus().gpus.size()))
      GTEST_SKIP() << "needs a GPU for every rank";
    device_ = device::use_gpu(world_.rank());
  }
  mpi::Communicator world_ = mpi::Communicator::from(MPI_COMM_WORLD);
  c10::Device device_ = c10::Device(c10::DeviceType::CPU);
};

TEST_F(NcclThreads, TheWatchStaysOutOfACommunicatorWhileALaneLaunches) {
  constexpr std::int64_t elements = 64;
  constexpr int launches = 300;  // at 0.2 ms and more: a dozen looks of the watch at least
  const mpi::Deadline deadline;
  mpi::FlightRecorder recorder(launches + 1);  // keeps the first, whose end the watch notes: it lives longer than that
  mpi::FlightLane& lane = recorder.add_lane("shard/gather");
  const auto nccl = nccl_transport(world_, device_, deadline);
  const at::Tensor from = at::full({elements}, world_.rank(), at::TensorOptions(at::kFloat).device(device_));
  const at::Tensor to = at::empty({world_.size() * elements}, from.options());
  const int before = ncclTimesInProgress();
  trireme::test::gpu::hold_events(true);  // the first of them is pending all the time
  for (int i = 0; i < launches; ++i) {
    mpi::Wait wait(lane.begin("all_gather", {4 * elements}), deadline, recorder);
    nccl->all_gather(static_cast<const std::byte*>(from.const_data_ptr()),
                     static_cast<std::byte*>(to.mutable_data_ptr()),
                     {.total = 4 * elements * world_.size(), .part = 4 * elements}, wait);
    if (i == 0) {
      EXPECT_TRUE(nccl->ends_later(lane, wait.operation(), deadline, recorder));
    } else {
      lane.finish(wait.operation().sequence);
    }
  }
  trireme::test::gpu::hold_events(false);
  EXPECT_GT(ncclTimesInProgress(), before) << "no launch was seen in progress";
  mpi::Wait wait(recorder.add_lane("test").begin("wait", {0}), deadline, recorder);
  wait.until([&] { return recorder.in_flight().size() == 1; }, [] { return std::string("the watch"); });
  for (int rank = 0; rank < world_.size(); ++rank)
    EXPECT_EQ(to[rank * elements].item<float>(), static_cast<float>(rank));
}

/// What every rank has gathers everywhere.
void expect_gathers(Transport& nccl, const mpi::Communicator& world, c10::Device device) {
  constexpr std::int64_t elements = 64;
  const mpi::Deadline deadline;
  mpi::FlightRecorder recorder;
  const at::Tensor from = at::full({elements}, world.rank(), at::TensorOptions(at::kFloat).device(device));
  const at::Tensor to = at::empty({world.size() * elements}, from.options());
  mpi::Wait wait(recorder.add_lane("test").begin("all_gather", {4 * elements}), deadline, recorder);
  nccl.all_gather(static_cast<const std::byte*>(from.const_data_ptr()), static_cast<std::byte*>(to.mutable_data_ptr()),
                  {.total = 4 * elements * world.size(), .part = 4 * elements}, wait);
  for (int rank = 0; rank < world.size(); ++rank)
    EXPECT_EQ(to[rank * elements].item<float>(), static_cast<float>(rank));
}

TEST_F(NcclThreads, ASecondLaneSplitsTheCommunicatorOfTheFirst) {
  const int before = ncclSplits();
  const mpi::Deadline deadline;
  auto first = nccl_transport(world_, device_, deadline);
  const auto second = nccl_transport(world_, device_, deadline, first.get());
  EXPECT_EQ(ncclSplits(), before + 1);
  expect_gathers(*second, world_, device_);
  expect_gathers(*first, world_, device_);
  first.reset();  // they share nothing
  expect_gathers(*second, world_, device_);
}

TEST_F(NcclThreads, LimitsTheThreadBlocksOfEveryCommunicator) {
  const auto free = nccl_transport(world_, device_, {});
  EXPECT_EQ(ncclMaxCtas().back(), 0);
  const auto first = nccl_transport(world_, device_, {}, nullptr, {.max_ctas = 4});
  EXPECT_EQ(ncclMaxCtas().back(), 4);
  const auto second = nccl_transport(world_, device_, {}, free.get(), {.max_ctas = 8});
  EXPECT_EQ(ncclMaxCtas().back(), 8);
  expect_gathers(*second, world_, device_);
}

TEST_F(NcclThreads, HaveThePolicyOfThreadBlocksOfTheRunFile) {
  if (world_.size() == 1) GTEST_SKIP() << "one rank has no communicator between ranks";
  const test::TokenFiles files(world_, 257);
  for (const std::int64_t pipeline : {1, 2}) {
    config::RunConfig config = test::odd_run(files, 1);
    config.mesh.pipeline = pipeline;
    config.batch = {.global = 16, .micro = 1};
    config.comm.nccl_max_ctas = 3;
    config.comm.nccl_windows = config.comm.nccl_copy_engines = pipeline == 1;
    train::Environment environment;
    environment.device.device = device_;
    environment.device.link = DeviceLink::nccl;
    const std::size_t before = ncclMaxCtas().size();
    const int splits = ncclSplits();
    const train::Job job(config, world_, train::job_options(config, environment));
    const std::vector<int> all = ncclMaxCtas();
    EXPECT_EQ(std::count(all.begin() + static_cast<std::ptrdiff_t>(before), all.end(), 3),
              static_cast<std::ptrdiff_t>(all.size() - before));
    EXPECT_GT(all.size(), before);
    const std::vector<int> policies = ncclCtaPolicies();
    EXPECT_EQ(std::count(policies.begin() + static_cast<std::ptrdiff_t>(before), policies.end(),
                         pipeline == 1 ? NCCL_CTA_POLICY_ZERO : 0),
              static_cast<std::ptrdiff_t>(all.size() - before));
    EXPECT_EQ(ncclSplits() > splits, world_.size() > pipeline) << "a second lane of a group splits";
  }
}

TEST_F(NcclThreads, SeveralRootsStartOneCommunicator) {
  for (const int per_root : {1, 2, 3}) {
    const auto nccl = nccl_transport(world_, device_, {}, nullptr, {.per_root = per_root});
    expect_gathers(*nccl, world_, device_);
  }
}

TEST_F(NcclThreads, ACommunicatorThatTheOthersDoNotEndIsAbortedAtTheDeadline) {
  if (world_.size() == 1) GTEST_SKIP() << "one rank has no communicator between ranks";
  std::atomic<bool> counts = false;
  const mpi::Deadline deadline{.timeout_seconds = 0.2,
                               .last_progress = [&] { return counts ? mpi::Clock::time_point{} : mpi::Clock::now(); }};
  auto nccl = nccl_transport(world_, device_, deadline);
  counts = true;
  if (world_.rank() == 0) nccl.reset();  // returns, although nobody else ends it yet
  ASSERT_EQ(MPI_Barrier(MPI_COMM_WORLD), MPI_SUCCESS);
  nccl.reset();
}

}  // namespace
}  // namespace trireme::comm
