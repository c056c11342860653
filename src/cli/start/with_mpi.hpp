// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>

#include "trireme/mpi/communicator.hpp"
#include "trireme/supervise/watchdog.hpp"

namespace trireme::cli {

/// Runs `body` between MPI's beginning and its end; `world`: all ranks of the job. A CollectiveError
/// ends it with its message and code; any other exception aborts the whole job with its message and code where it
/// leaves `body`, while MPI is still there to tell the other ranks.
int with_mpi(const std::function<int(const mpi::Communicator& world)>& body);

/// The same for a `body` that has deadlines from its first to its last collective: the watchdog is at rest when it
/// begins. From MPI_Init to the start of `body`, and from its end until the process is gone, the watchdog ends a job
/// whose ranks wait for one that stopped (exit code 7). timeout_seconds: as far as it is known before the run file is
/// read.
int with_mpi(double timeout_seconds,
             const std::function<int(const mpi::Communicator& world, supervise::Watchdog& watchdog)>& body);

/// Before MPI begins: `check_introduction` with what is there. The doctor does without, to look at what is wrong.
void require_process_manager();

/// What the MPI that is loaded calls itself, all its lines. May be asked before MPI begins.
[[nodiscard]] std::string mpi_library();

}  // namespace trireme::cli
