// SPDX-License-Identifier: Apache-2.0
//
// Number of host waits for a GPU in a step of a mixture of experts: one more per layer and microbatch than without
// experts, in forward, with and without expert ranks; none in recompute and in backward.
#include <gtest/gtest.h>

#include "support/jobs.hpp"
#include "support/simulated_gpu/engine.hpp"
#include "trireme/device/gpus.hpp"

namespace trireme::train::host_waits_test {
namespace {

/// Waits of the second step.
std::int64_t waits(const config::RunConfig& config, const mpi::Communicator& world, const JobOptions& options) {
  std::int64_t before = 0, found = 0;
  (void)test::train_job(config, world, options, [&](Job&, int step) {
    found = test::gpu::host_waits() - before;
    if (step < 1) before = test::gpu::host_waits();
  });
  return found;
}

TEST(HostWaits, AreOneForALayerOfExpertsAndMicrobatch) {
  const mpi::Communicator world = mpi::Communicator::from(MPI_COMM_WORLD);
  const device::GpuProbe probe = device::probe_gpus();
  if (world.size() > 2 || static_cast<int>(probe.gpus.size()) < world.size()) GTEST_SKIP() << "needs a GPU for a rank";
  JobOptions options{.device = device::use_gpu(world.rank())};
  options.lane_threads = false;
  options.link = comm::DeviceLink::nccl;
  const test::TokenFiles files(world, 257);
  config::RunConfig dense = test::odd_run(files, 2);
  dense.batch.global = 4;
  dense.batch.micro = 4 / (2 * world.size());
  for (const auto recompute : {config::Recompute::none, config::Recompute::block}) {
    dense.memory.recompute = recompute;
    const std::int64_t usual = waits(dense, world, options);
    config::RunConfig mixture = dense;
    mixture.model.architecture = "qwen3_moe";
    mixture.model.experts = 6;
    mixture.model.experts_per_token = 2;
    mixture.model.expert_size = 22;
    for (const int ranks : {1, world.size()}) {
      mixture.mesh.expert = ranks;
      EXPECT_EQ(waits(mixture, world, options) - usual, 2 * mixture.model.layers) << ranks << " expert ranks";
    }
  }
}

}  // namespace
}  // namespace trireme::train::host_waits_test
