// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "train/setup/batch_job.hpp"
#include "trireme/config/run_config.hpp"
#include "trireme/mpi/communicator.hpp"
#include "trireme/mpi/topology.hpp"
#include "trireme/train/engine/job.hpp"
#include "trireme/train/setup/compute_device.hpp"

namespace trireme::train {

/// Hardware of a run: found and agreed on before its job is built.
struct Environment {
  BatchJob batch_job;
  mpi::Topology topology;
  int threads = 1;  ///< of this rank
  ComputeDevice device;
  bool is_trial = false;       ///< train --try: nothing is kept
  std::int64_t log_every = 1;  ///< train --log-every
};

/// Finds the environment and takes it: threads are set, this rank's GPU is chosen, on CPUs the GEMM library.
/// Collective over `world`. Throws EnvironmentError.
[[nodiscard]] Environment take_environment(const config::RunConfig& config, const mpi::Communicator& world);

/// Options of a job in that environment.
[[nodiscard]] JobOptions job_options(const config::RunConfig& config, const Environment& environment);

/// Warns, once for all nodes, where a node, a Slurm job or an affinity mask has fewer cores than the threads of its
/// ranks need. Collective over `world`.
void warn_of_few_cores(const Environment& environment, const mpi::Communicator& world);

}  // namespace trireme::train
