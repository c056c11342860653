// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>

#include "trireme/mpi/communicator.hpp"
#include "trireme/supervise/watchdog.hpp"

namespace trireme::cli {

/// Runs `body` between MPI_Init and MPI_Finalize; `world`: all ranks of the job. A CollectiveError ends the job with
/// its message and code; any other exception aborts it with its message and code when it leaves `body`, while MPI can
/// still notify the other ranks.
int with_mpi(const std::function<int(const mpi::Communicator& world)>& body);

/// The same for a `body` that has deadlines from its first to its last collective: the
/// watchdog expects nothing when it begins. From MPI_Init to the start of `body`, and from
/// its end until the process ends, the watchdog ends a job whose ranks wait for one that
/// stopped (exit code 7). timeout_seconds: the value known before the run file is read.
int with_mpi(double timeout_seconds,
             const std::function<int(const mpi::Communicator& world, supervise::Watchdog& watchdog)>& body);

/// Calls `check_introduction` before MPI_Init. The doctor skips it, to diagnose the failure.
void require_process_manager();

/// MPI_Get_library_version, all its lines. Can be called before MPI_Init.
[[nodiscard]] std::string mpi_library();

}  // namespace trireme::cli
