// SPDX-License-Identifier: Apache-2.0
//
// Whatever of a step runs on the host leaves the GPU's memory alone: here it would end with a signal.
#include <ATen/ops/ones.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cmath>

#include "support/jobs.hpp"
#include "support/simulated_gpu/engine.hpp"
#include "trireme/device/gpus.hpp"

namespace trireme::train {
namespace {

class ClosedMemory : public testing::Test {
 protected:
  ClosedMemory() { test::gpu::close_memory(true); }
  ~ClosedMemory() override { test::gpu::close_memory(false); }

  void train(const config::Memory& memory, bool graphs = false) {
    const test::TokenFiles files(world_, 257);
    config::RunConfig config = test::odd_run(files, 2 + (graphs ? 1 : 0));
    config.memory = memory;
    config.device.cuda_graphs = graphs;
    config.batch = {.global = world_.size(), .micro = 1};
    config.model.layers = 2;
    JobOptions options;
    options.device = device::use_gpu(0);
    for (const double loss : test::train_job(config, world_, options).curve.losses) EXPECT_TRUE(std::isfinite(loss));
  }
  mpi::Communicator world_ = mpi::Communicator::from(MPI_COMM_WORLD);
};

TEST_F(ClosedMemory, IsNotTouchedByAStepOnTheGpu) { train({}); }
TEST_F(ClosedMemory, IsNotTouchedWhereParametersAreOffloaded) { train({.offload = config::Offload::parameters}); }
TEST_F(ClosedMemory, IsNotTouchedWhereActivationsAreOffloaded) {
  train({.activation_offload = true, .activation_offload_min_bytes = Bytes{0}});
}
TEST_F(ClosedMemory, IsNotTouchedByGraphs) { train({}, true); }

TEST_F(ClosedMemory, IsClosed) {
  const at::Tensor there = at::ones({4}, at::TensorOptions(at::kFloat).device(at::kCUDA));
  EXPECT_EQ(there.sum().item<float>(), 4.0F);
  std::array<int, 2> ends{};
  ASSERT_EQ(pipe(ends.data()), 0);
  EXPECT_EQ(write(ends[1], there.const_data_ptr(), 4), -1) << "the kernel could read it";
  EXPECT_EQ(errno, EFAULT);
  test::gpu::close_memory(false);
  EXPECT_EQ(write(ends[1], there.const_data_ptr(), 4), 4);
  for (const int end : ends) close(end);
}

}  // namespace
}  // namespace trireme::train
