// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "train/setup/batch_job.hpp"
#include "trireme/kernels/gemm.hpp"
#include "trireme/mpi/topology.hpp"
#include "trireme/train/engine/job.hpp"
#include "trireme/train/setup/compute_device.hpp"

namespace trireme::train {

/// What a person wants to know before the first step: the batch job, model size, mesh, batch, policy, bytes per rank by
/// category, device, threads, data, saves. samples: of all training files.
[[nodiscard]] std::string banner(const Job& job, const BatchJob& batch_job, const mpi::Topology& topology, int threads,
                                 const kernels::GemmChoice& gemm, const ComputeDevice& device, std::int64_t samples);

}  // namespace trireme::train
