// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cli/start/train_arguments.hpp"
#include "trireme/config/run_config.hpp"
#include "trireme/mpi/collective_try.hpp"
#include "trireme/mpi/communicator.hpp"

namespace trireme::cli {

/// The run file of `arguments` with its --set values: read by the first rank only, `${VAR}` in paths expanded there,
/// equal on every rank. Collective over `world`. Throws CollectiveError if the file has mistakes or the ranks were
/// started with different command lines.
[[nodiscard]] config::RunConfig read_run_file(const mpi::Communicator& world, const TrainArguments& arguments,
                                              const mpi::Progress& progress);

}  // namespace trireme::cli
