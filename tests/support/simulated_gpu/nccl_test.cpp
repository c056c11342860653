// SPDX-License-Identifier: Apache-2.0
//
// NCCL's requirements on src/comm/cuda that no result of a collective shows: one thread at a time inside a
// communicator, and destruction of a communicator that other ranks do not destroy.
#include "support/simulated_gpu/cuda/nccl.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <future>
#include <iterator>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "support/jobs.hpp"
#include "support/nccl_ranks.hpp"
#include "support/simulated_gpu/engine.hpp"
#include "support/temporary_directory.hpp"
#include "train/setup/environment.hpp"
#include "trireme/base/error.hpp"
#include "trireme/comm/device_transports.hpp"
#include "trireme/comm/transport.hpp"
#include "trireme/device/gpus.hpp"
#include "trireme/mpi/communicator.hpp"
#include "trireme/mpi/flight.hpp"
#include "trireme/mpi/wait.hpp"
#include "trireme/train/engine/job.hpp"

namespace trireme::test::gpu::nccl {
/// Declared in nccl_communicator.hpp, which includes nccl.h under the name of the real header.
[[nodiscard]] bool group_is_open();
}  // namespace trireme::test::gpu::nccl

namespace trireme::comm {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class NcclThreads : public testing::Test {
 protected:
  void SetUp() override {
    if (!trireme::test::nccl_ranks_fit(world_)) GTEST_SKIP() << trireme::test::no_nccl_between;
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

/// Expects an all-gather to return the data of all ranks.
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
  if (world_.rank() == 0) nccl.reset();  // returns before any other rank destroys it
  ASSERT_EQ(MPI_Barrier(MPI_COMM_WORLD), MPI_SUCCESS);
  nccl.reset();
}

/// A deadline whose hang is noted and thrown.
struct NotedDeadline {
  std::promise<std::string> said;
  std::future<std::string> line = said.get_future();
  mpi::Deadline deadline{.timeout_seconds = 60, .on_hang = [this](const std::string& text) { said.set_value(text); }};
  [[nodiscard]] bool hears_within(double seconds) const {
    return line.wait_for(std::chrono::duration<double>(seconds)) == std::future_status::ready;
  }
};

/// One gather that the watch looks after.
void launch_watched(Transport& nccl, const mpi::Communicator& world, c10::Device device, mpi::FlightLane& lane,
                    mpi::FlightRecorder& recorder, const mpi::Deadline& deadline) {
  static const at::Tensor from = at::zeros({64}, at::TensorOptions(at::kFloat).device(device));
  static const at::Tensor to = at::zeros({64 * world.size()}, from.options());
  mpi::Wait wait(lane.begin("all_gather", {256}), deadline, recorder);
  nccl.all_gather(static_cast<const std::byte*>(from.const_data_ptr()), static_cast<std::byte*>(to.mutable_data_ptr()),
                  {.total = 256 * world.size(), .part = 256}, wait);
  EXPECT_TRUE(nccl.ends_later(lane, wait.operation(), deadline, recorder));
}

TEST_F(NcclThreads, TheDeadlineOfWhatIsPendingCountsFromTheLastProgress) {
  std::atomic<bool> works_on_files = true;
  NotedDeadline noted;
  noted.deadline.timeout_seconds = 0.1;
  noted.deadline.last_progress = [&] { return works_on_files ? mpi::Clock::now() : mpi::Clock::time_point{}; };
  mpi::FlightRecorder recorder;
  mpi::FlightLane& lane = recorder.add_lane("shard/gather");
  const auto nccl = nccl_transport(world_, device_, {});
  trireme::test::gpu::hold_events(true);
  launch_watched(*nccl, world_, device_, lane, recorder, noted.deadline);
  EXPECT_FALSE(noted.hears_within(0.5)) << "another rank works on files";
  works_on_files = false;
  EXPECT_TRUE(noted.hears_within(60));
  trireme::test::gpu::hold_events(false);
}

TEST_F(NcclThreads, AnErrorOfTheGpuIsReportedWithoutAnotherCall) {
  NotedDeadline noted;
  mpi::FlightRecorder recorder;
  mpi::FlightLane& lane = recorder.add_lane("shard/gather");
  const auto nccl = nccl_transport(world_, device_, {});
  trireme::test::gpu::hold_events(true);
  launch_watched(*nccl, world_, device_, lane, recorder, noted.deadline);
  trireme::test::gpu::fail_events(true);
  ASSERT_TRUE(noted.hears_within(60));
  trireme::test::gpu::fail_events(false);
  trireme::test::gpu::hold_events(false);
  EXPECT_THAT(noted.line.get(), AllOf(HasSubstr("The GPU failed"), HasSubstr("all_gather #1"), HasSubstr("illegal")));
}

TEST_F(NcclThreads, ARankThatHasLeftIsAHangThatIsReportedAtOnceAndDumped) {
  if (world_.size() == 1) GTEST_SKIP() << "one rank has no communicator between ranks";
  const test::TemporaryDirectory directory;
  NotedDeadline noted;
  noted.deadline.dump_path = directory.path() + "/hang.json";
  mpi::FlightRecorder recorder;
  mpi::FlightLane& lane = recorder.add_lane("shard/gather");
  auto nccl = nccl_transport(world_, device_, {});
  if (world_.rank() == world_.size() - 1) {
    try {
      const std::unique_ptr<Transport> aborted = std::move(nccl);
      throw std::runtime_error("leaves");
    } catch (const std::runtime_error&) {
    }
  } else {
    // Launched where launches do not wait for other ranks; else the launch itself reports.
    const auto launch = [&] { launch_watched(*nccl, world_, device_, lane, recorder, noted.deadline); };
    if (trireme::test::gpu::concurrent())
      launch();
    else
      EXPECT_THROW(launch(), HangError);
    EXPECT_TRUE(noted.hears_within(60));
    EXPECT_THAT(noted.line.get(),
                AllOf(HasSubstr("lost the connection to"), HasSubstr("rank"), HasSubstr("hang.json")));
    EXPECT_TRUE(std::filesystem::exists(noted.deadline.dump_path));
    // The abort is an error on the next neighbours, and so on along the ring.
    try {
      const std::unique_ptr<Transport> aborted = std::move(nccl);
      throw std::runtime_error("leaves");
    } catch (const std::runtime_error&) {
    }
  }
  ASSERT_EQ(MPI_Barrier(MPI_COMM_WORLD), MPI_SUCCESS);
}

TEST_F(NcclThreads, AFailedMessageEndsItsGroup) {
  constexpr std::int64_t bytes = 256;
  mpi::FlightRecorder recorder;
  const mpi::Deadline deadline;
  mpi::Wait wait(recorder.add_lane("test").begin("all_to_all", {bytes}), deadline, recorder);
  const auto nccl = nccl_transport(world_, device_, {});
  const std::vector<std::int64_t> counts(static_cast<std::size_t>(world_.size()), bytes);
  const at::Tensor out = at::ones({world_.size() * bytes}, at::TensorOptions(at::kByte).device(device_));
  const at::Tensor in = at::zeros_like(out);
  const auto exchange = [&] {
    nccl->all_to_all(static_cast<const std::byte*>(out.const_data_ptr()), counts,
                     static_cast<std::byte*>(in.mutable_data_ptr()), counts, wait);
  };
  ncclFailNextSend(ncclInvalidArgument);
  EXPECT_THROW(exchange(), EnvironmentError);
  EXPECT_FALSE(trireme::test::gpu::nccl::group_is_open());
  exchange();
  EXPECT_EQ(in.min().item<int>(), 1);
}

TEST_F(NcclThreads, AnEndInsideNcclThatNeverReturnsIsLeftBehindAtTheDeadline) {
  const mpi::Deadline deadline{.timeout_seconds = 0.2};
  auto nccl = nccl_transport(world_, device_, deadline);
  auto unwound = nccl_transport(world_, device_, deadline);
  ncclHoldEnds(true);
  nccl.reset();  // returns
  try {
    const std::unique_ptr<Transport> aborted = std::move(unwound);
    throw std::runtime_error("leaves");
  } catch (const std::runtime_error&) {
  }
  ncclHoldEnds(false);
  ASSERT_EQ(MPI_Barrier(MPI_COMM_WORLD), MPI_SUCCESS);
}

TEST_F(NcclThreads, ASplitThatHangsIsDumpedWithWhatTheRankDidAndWritesNothingAfterwards) {
  const test::TemporaryDirectory directory;
  const auto first = nccl_transport(world_, device_, {});
  NotedDeadline noted;
  noted.deadline.timeout_seconds = 0.2;
  noted.deadline.dump_path = directory.path() + "/hang.json";
  mpi::FlightRecorder recorder;
  recorder.add_lane("shard/gather").begin("all_gather", {256});
  ncclHoldSplits(true);
  EXPECT_THROW((void)nccl_transport(world_, device_, noted.deadline, first.get(), {.recorder = &recorder}), HangError);
  EXPECT_THAT(noted.line.get(), HasSubstr("split a communicator"));
  std::ifstream file(noted.deadline.dump_path);
  const std::string dump(std::istreambuf_iterator<char>(file), {});
  EXPECT_THAT(dump, AllOf(HasSubstr("split a communicator"), HasSubstr("shard/gather")));
  // Reuses freed memory: the simulated NCCL checks that the handle of the split was not overwritten.
  std::vector<std::vector<unsigned char>> reused;
  for (std::size_t size = 32; size < 2048; size += 16)
    for (int i = 0; i < 8; ++i) reused.emplace_back(size, 0xff);
  const int splits = ncclSplits();
  ncclHoldSplits(false);
  mpi::Wait wait(recorder.add_lane("test").begin("wait", {0}), noted.deadline, recorder);
  noted.deadline.timeout_seconds = 60;
  wait.until([&] { return ncclSplits() > splits; }, [] { return std::string("the split"); });
  ASSERT_EQ(MPI_Barrier(MPI_COMM_WORLD), MPI_SUCCESS);
}

TEST_F(NcclThreads, NeighboursOfAPipelineMakeTheirCommunicatorsTwoAndTwoAtATime) {
  if (world_.size() != 4) GTEST_SKIP() << "needs two pairs";
  // The first communicators of ranks 0 and 1 are not made before those of ranks 2 and 3 have begun.
  std::atomic<int> calls = 0;
  std::atomic<bool> together = true;
  ncclAtInit([&] {
    if (calls++ > 0) return;
    MPI_Request request = MPI_REQUEST_NULL;
    MPI_Ibarrier(MPI_COMM_WORLD, &request);
    int done = 0;
    const auto began = mpi::Clock::now();
    while (done == 0) {
      MPI_Test(&request, &done, MPI_STATUS_IGNORE);
      if (done == 0 && mpi::Clock::now() - began > std::chrono::seconds(20)) {
        together = false;
        break;  // the others meet it later
      }
    }
  });
  const int next = (world_.rank() + 1) % 4, before = (world_.rank() + 3) % 4;
  const Channels channels = nccl_channels(world_, device_, {}, {.to = {next, before}, .from = {next, before}});
  ncclAtInit(nullptr);
  EXPECT_TRUE(together);
  EXPECT_EQ(calls, 4) << "two neighbours, two directions";
}

TEST_F(NcclThreads, CollectivesArePendingWhereTheDeviceIsConcurrent) {
  mpi::FlightRecorder recorder;
  mpi::FlightLane& lane = recorder.add_lane("shard/gather");
  const mpi::Deadline deadline;
  const auto nccl = nccl_transport(world_, device_, deadline);
  const int before = ncclPendingAtLaunches();
  for (int i = 0; i < 20; ++i) launch_watched(*nccl, world_, device_, lane, recorder, deadline);
  const bool pending = ncclPendingAtLaunches() > before;
  EXPECT_EQ(pending, trireme::test::gpu::concurrent());
  mpi::Wait wait(recorder.add_lane("test").begin("wait", {0}), deadline, recorder);
  wait.until([&] { return recorder.in_flight().size() == 1; }, [] { return std::string("the watch"); });
}

TEST(GpuTestPrograms, HaveTheSettingsOfTheProgram) {
  EXPECT_STREQ(std::getenv("CUDA_DEVICE_MAX_CONNECTIONS"), "32");
  int ranks = 1;
  ASSERT_EQ(MPI_Comm_size(MPI_COMM_WORLD, &ranks), MPI_SUCCESS);
  if (ranks == 1) return;  // nothing waits for another rank
  ASSERT_NE(std::getenv("CUDA_MODULE_LOADING"), nullptr) << "kernels are loaded before any collective";
  EXPECT_STREQ(std::getenv("CUDA_MODULE_LOADING"), "EAGER");
}

}  // namespace
}  // namespace trireme::comm

// Fault, hangs: a collective of NCCL waits for a rank's work on files -> its deadline counts from the last progress of
//   that work
// Fault, hangs: the GPU fails -> exit code 5
// Fault, hangs: NCCL: a call fails within a group, a split hangs, ending never returns -> the group is ended, the
//   report written; left behind at the deadline
