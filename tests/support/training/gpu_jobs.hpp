// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/ops/empty.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <gtest/gtest.h>

#include "support/jobs.hpp"
#include "trireme/device/gpus.hpp"
#include "trireme/device/memory.hpp"
#include "trireme/mpi/communicator.hpp"
#include "trireme/train/engine/job.hpp"

namespace trireme::test {

/// A fixture of jobs on GPUs, which the ranks share if there are fewer; skipped if there is none.
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

  /// Memory in use, without blocks of an earlier job that another stream read: libtorch counts these until it queries
  /// that stream, at the next allocation.
  [[nodiscard]] device::MemoryUse memory_at_rest() const {
    const at::Device gpu = options_.device;
    c10::impl::VirtualGuardImpl(gpu.type()).synchronizeDevice(gpu.index());
    (void)at::empty({1}, at::TensorOptions(gpu).dtype(at::kByte));
    return device::memory_use();
  }

  mpi::Communicator world_ = mpi::Communicator::from(MPI_COMM_WORLD);
  train::JobOptions options_;
  int gpus_ = 0;
};

/// Jobs on one rank or two whose collectives are staged through host memory.
class StagedGpuJobs : public GpuJobs<> {
 protected:
  void SetUp() override {
    GpuJobs::SetUp();
    if (!IsSkipped() && world_.size() > 2) GTEST_SKIP() << "one rank and two are enough";
    options_.poison = false;
    options_.link = comm::DeviceLink::staged;
  }

  TokenFiles files_{world_, 257};
};

}  // namespace trireme::test
