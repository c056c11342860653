// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "trireme/config/run_config.hpp"
#include "trireme/model/model.hpp"
#include "trireme/mpi/communicator.hpp"

namespace trireme::train {

/// Selects the kernels of a run on GPUs: attention by flash or cuDNN, measured by rank 0 on its GPU at the shape of the
/// run and broadcast, because results of the two differ in their bits; with `run.deterministic` those with a fixed
/// order of sums. Logs the choice. held: one rank's part of the model. Collective over `world`; every rank computes on
/// its GPU.
void choose_device_kernels(const config::RunConfig& config, const model::Sizes& held, const mpi::Communicator& world);

}  // namespace trireme::train
