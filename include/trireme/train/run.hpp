// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "trireme/comm/communicator.hpp"
#include "trireme/config/run_config.hpp"

namespace trireme::train {

/// Trains what the run file describes, from its first step to its last: banner, steps, metrics, evaluation, export.
/// Collective over `world`. The libraries are up (`device::install_allocator`, Kokkos, threads). Throws Error.
void run_training(const config::RunConfig& config, const comm::Communicator& world);

}  // namespace trireme::train
