// SPDX-License-Identifier: Apache-2.0
//
// comm.nccl_windows: gathers and reductions of every parameter block read and write memory that is registered with the
// communicator that carries them, and nothing else changes.
#include <ATen/core/Tensor.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "support/jobs.hpp"
#include "support/nccl_ranks.hpp"
#include "support/simulated_gpu/cuda/nccl.h"
#include "trireme/base/error.hpp"
#include "trireme/comm/device_transports.hpp"
#include "trireme/comm/transport.hpp"
#include "trireme/device/gpus.hpp"
#include "trireme/mpi/flight.hpp"
#include "trireme/mpi/wait.hpp"

namespace trireme::train::windows_test {
namespace {

class Windows : public testing::Test {
 protected:
  void SetUp() override {
    if (world_.size() == 1) GTEST_SKIP() << "a group of one rank has no windows";
    if (!test::nccl_ranks_fit(world_)) GTEST_SKIP() << test::no_nccl_between;
    options_.device = device::use_gpu(world_.rank());
    options_.link = comm::DeviceLink::nccl;
    options_.poison = true;
  }
  at::Tensor memory(std::int64_t elements) const {
    return comm::window_memory(device::Category::communication, elements, DType::fp32, options_.device);
  }
  mpi::Communicator world_ = mpi::Communicator::from(MPI_COMM_WORLD);
  JobOptions options_;
};

TEST_F(Windows, AreUsedByWhatLiesInThemAndEndWithTheirCommunicator) {
  constexpr std::int64_t elements = 64;
  const mpi::Deadline deadline;
  mpi::FlightRecorder recorder;
  mpi::Wait wait(recorder.add_lane("test").begin("all_gather", {4 * elements}), deadline, recorder);
  const comm::Parts parts{.total = 4 * elements * world_.size(), .part = 4 * elements};
  auto nccl = comm::nccl_transport(world_, options_.device, deadline, nullptr, {.windows = true});
  at::Tensor from = memory(elements), to = memory(elements * world_.size());
  from.fill_(world_.rank());
  const auto gather = [&] {
    const NcclWindowUse before = ncclWindowUse();
    nccl->all_gather(static_cast<const std::byte*>(from.const_data_ptr()),
                     static_cast<std::byte*>(to.mutable_data_ptr()), parts, wait);
    return ncclWindowUse().inside - before.inside;
  };
  EXPECT_EQ(gather(), 0);
  nccl->add_window(from, comm::WindowUse::part, wait);
  EXPECT_EQ(gather(), 0) << "one of both is registered";
  nccl->add_window(to, comm::WindowUse::gathered, wait);
  EXPECT_EQ(gather(), 1);
  for (int rank = 0; rank < world_.size(); ++rank)
    EXPECT_EQ(to[rank * elements].item<float>(), static_cast<float>(rank));
  const void* const address = from.const_data_ptr();
  from = at::Tensor();
  EXPECT_NE(memory(elements).const_data_ptr(), address) << "the transport shares a window's memory";
  const int left = ncclWindowUse().left;
  nccl.reset();
  EXPECT_EQ(ncclWindowUse().left, left) << "a window outlives its communicator";
  EXPECT_EQ(memory(elements).const_data_ptr(), address);
}

TEST_F(Windows, HaveOneSizeOnAllRanks) {
  const mpi::Deadline deadline;
  mpi::FlightRecorder recorder;
  mpi::Wait wait(recorder.add_lane("test").begin("add_window", {0}), deadline, recorder);
  const auto nccl = comm::nccl_transport(world_, options_.device, deadline, nullptr, {.windows = true});
  EXPECT_THROW(nccl->add_window(memory(64 + world_.rank()), comm::WindowUse::part, wait), EnvironmentError);
}

TEST_F(Windows, AreNotRegisteredInAGroupThatSpansNvlinkDomains) {
  const mpi::Deadline deadline;
  mpi::FlightRecorder recorder;
  mpi::Wait wait(recorder.add_lane("test").begin("add_window", {0}), deadline, recorder);
  const auto registered = [&](const std::string& domain) {
    const int before = ncclWindowUse().registered;
    const auto nccl = comm::nccl_transport(world_, options_.device, deadline, nullptr,
                                           {.windows = true, .bf16_wire = true, .nvlink_domain = domain});
    EXPECT_TRUE(nccl->add_window(memory(64), comm::WindowUse::part, wait));
    return ncclWindowUse().registered - before;
  };
  EXPECT_EQ(registered("n1/switch"), 3);
  EXPECT_EQ(registered(world_.rank() == 0 ? "n1/switch" : "n2/switch"), 0);
}

TEST_F(Windows, OfTermsInBf16AreRegisteredBeforeTheFirstSum) {
  const mpi::Deadline deadline;
  mpi::FlightRecorder recorder;
  mpi::Wait wait(recorder.add_lane("test").begin("reduce_scatter", {0}), deadline, recorder);
  const auto nccl =
      comm::nccl_transport(world_, options_.device, deadline, nullptr, {.windows = true, .bf16_wire = true});
  const NcclWindowUse before = ncclWindowUse();
  const at::Tensor terms = memory(64 * world_.size()), sum = memory(64);
  nccl->reduce_scatter(terms.const_data_ptr<float>(), sum.mutable_data_ptr<float>(),
                       {.total = 64 * world_.size(), .part = 64}, DType::bf16, false, wait);
  EXPECT_EQ(ncclWindowUse().registered, before.registered);
  EXPECT_EQ(ncclWindowUse().inside, before.inside + 1);
}

/// One curve with and without windows.
void expect_windows(config::RunConfig config, const mpi::Communicator& world, JobOptions options,
                    const std::string& name) {
  const test::Curve usual = test::train_job(config, world, options).curve;
  config.comm.nccl_windows = options.nccl.windows = true;
  options.nccl.bf16_wire = config.precision.reduce == config::Reduce::bf16_wire;
  const NcclWindowUse before = ncclWindowUse();
  const test::Curve curve = test::train_job(config, world, options).curve;
  EXPECT_EQ(curve.losses, usual.losses) << name;
  EXPECT_EQ(curve.grad_norms, usual.grad_norms) << name;
  EXPECT_GT(ncclWindowUse().inside, before.inside) << name;
  EXPECT_EQ(ncclWindowUse().outside, before.outside) << name << ": a gather or reduction was outside of windows";
}

TEST_F(Windows, HoldWhatEveryGatherAndReductionReadsAndWrites) {
  const test::TokenFiles files(world_, 257);
  config::RunConfig usual = test::odd_run(files, 2);
  usual.batch.global = 16;
  usual.batch.micro = 16 / (2 * world_.size());
  expect_windows(usual, world_, options_, "immediate");
  config::RunConfig deferred = usual;
  deferred.sync.policy = config::SyncPolicy::deferred;
  deferred.precision.compute = DType::bf16;
  expect_windows(deferred, world_, options_, "deferred in bf16");
  config::RunConfig on_the_wire = usual;
  on_the_wire.precision.reduce = config::Reduce::bf16_wire;
  expect_windows(on_the_wire, world_, options_, "terms of bf16");
  for (const auto offload : {config::Offload::optimizer, config::Offload::parameters}) {
    config::RunConfig offloads = usual;
    offloads.memory.offload = offload;
    expect_windows(offloads, world_, options_, "offload");
  }
  if (world_.size() == 4) {
    config::RunConfig hybrid = usual;
    hybrid.mesh.replicate = 2;
    hybrid.sync.policy = config::SyncPolicy::immediate_all;
    hybrid.sync.reshard_after_forward = 2;
    expect_windows(hybrid, world_, options_, "hybrid");
    hybrid.precision.reduce = config::Reduce::bf16_wire;
    expect_windows(hybrid, world_, options_, "hybrid with terms of bf16");
    config::RunConfig groups = usual;
    groups.sync.reshard_after_forward = 2;
    expect_windows(groups, world_, options_, "copies in groups");
    config::RunConfig experts = usual;
    experts.model.architecture = "qwen3_moe";
    experts.model.experts = 6;
    experts.model.experts_per_token = 2;
    experts.model.expert_size = 22;
    experts.mesh.expert = 2;
    expect_windows(experts, world_, options_, "experts");
  }
}

}  // namespace
}  // namespace trireme::train::windows_test
