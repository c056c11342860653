// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "trireme/base/error.hpp"
#include "trireme/config/run_config.hpp"
#include "trireme/mpi/communicator.hpp"

namespace trireme::train {

/// Trains what the run file describes, from its first step to its last: banner, steps, metrics, evaluation,
/// checkpoints, export. Resumes from a checkpoint as `checkpoint.resume` says. Returns ExitCode::requeue when a signal
/// stopped it after a save. Collective over `world`. The libraries are up (`device::install_allocator`, Kokkos,
/// threads). Throws Error. run_file: the file that `config` was read from; it is never written. is_trial: what it
/// leaves behind is removed, which the banner prints.
ExitCode run_training(const config::RunConfig& config, const mpi::Communicator& world, const std::string& run_file = {},
                      bool is_trial = false);

}  // namespace trireme::train
