// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "trireme/base/error.hpp"

namespace trireme::mpi {

/// Writes "trireme: error: `message`" to standard error, all of its lines in one piece, and waits for the launcher to
/// read it before the ranks end.
void print_error(std::string_view message);

/// Ends the whole job: writes `message` prefixed `[rank r host] error:` to standard error
/// (without MPI as `print_error`). Text after an empty line in it, such as tables, is
/// written above. Then calls MPI_Abort(code), which keeps the code under mpirun and srun.
/// Callable from any thread, with or without MPI; the first call wins, later ones wait
/// for the end, also those of the other ranks of the node. If MPI_Abort itself hangs, the
/// process exits with `code` some seconds later. more: called on the printing rank only,
/// for two seconds at most (it may read a file system); its text follows the message.
[[noreturn]] void abort_job(ExitCode code, std::string_view message, const std::function<std::string()>& more = {});

/// The ranks of this node whose process has ended, such as "rank 3 on n2"; "" if there is none, before MPI is up,
/// and where ranks do not see each other's processes (a container each).
[[nodiscard]] std::string ended_ranks();

/// The ranks of this node on which MPI_Finalize has not returned although it has on this one, without those whose
/// process has ended; also "" where ranks of the node share no memory or do not see each other's processes.
[[nodiscard]] std::string unfinalized_ranks();

/// Ends the job with the `exit_report` of the exception that is being handled.
[[noreturn]] void abort_job_for_current_exception();

/// Waits for the end of the job that another rank, or another thread, is about to call for.
[[noreturn]] void await_end_of_job();

}  // namespace trireme::mpi
