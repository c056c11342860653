// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

#include "trireme/base/error.hpp"

namespace trireme::mpi {

/// Ends the whole job: writes `message` as one line prefixed `[rank r host]` to standard error (without MPI: prefixed
/// `trireme: error:`, its line breaks kept for a person), below what follows in it after an empty line: tables keep
/// their lines. Then calls MPI_Abort(code), which keeps the code under mpirun and srun. Callable from any thread, with
/// or without MPI; the first call wins, later ones wait for the end, also those of the other ranks of the node. If
/// MPI_Abort itself hangs, the process exits with `code` some seconds later.
[[noreturn]] void abort_job(ExitCode code, std::string_view message);

/// `message` for any exception: an Error's code and text, everything else as a bug.
[[noreturn]] void abort_job_for_current_exception();

/// Waits for the end of the job that another rank, or another thread, is about to call for.
[[noreturn]] void await_end_of_job();

}  // namespace trireme::mpi
