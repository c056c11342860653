// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include "trireme/device/gpus.hpp"
#include "trireme/mpi/communicator.hpp"
#include "trireme/train/engine/job.hpp"

namespace trireme::test {

/// A fixture of jobs on GPUs, which the ranks share where there are fewer; skipped where there is none.
template <class Base = testing::Test>
class GpuJobs : public Base {
 protected:
  void SetUp() override {
    const device::GpuProbe probe = device::probe_gpus();
    if (probe.gpus.empty()) GTEST_SKIP() << probe.reason;
    gpus_ = static_cast<int>(probe.gpus.size());
    options_.device = device::use_gpu(world_.rank() % gpus_);
    options_.poison = true;
  }

  mpi::Communicator world_ = mpi::Communicator::from(MPI_COMM_WORLD);
  train::JobOptions options_;
  int gpus_ = 0;
};

}  // namespace trireme::test
