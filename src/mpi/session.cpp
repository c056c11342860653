// SPDX-License-Identifier: Apache-2.0
#include "trireme/mpi/session.hpp"

#include <fmt/format.h>

#include <exception>
#include <string_view>

#include "mpi/abort_state.hpp"
#include "trireme/base/error.hpp"
#include "trireme/mpi/abort.hpp"
#include "trireme/mpi/wait.hpp"

namespace trireme::mpi {
namespace {

std::string_view thread_level(int level) {
  switch (level) {
    case MPI_THREAD_SINGLE: return "MPI_THREAD_SINGLE";
    case MPI_THREAD_FUNNELED: return "MPI_THREAD_FUNNELED";
    case MPI_THREAD_SERIALIZED: return "MPI_THREAD_SERIALIZED";
    case MPI_THREAD_MULTIPLE: return "MPI_THREAD_MULTIPLE";
    default: return "an unknown thread level";
  }
}

// An uncaught exception, on any thread, ends the whole job with its message.
[[noreturn]] void end_the_job() {
  if (std::current_exception()) abort_job_for_current_exception();
  abort_job(ExitCode::bug, "The program was terminated: report this as a bug in Trireme.");
}

}  // namespace

Session::Session(int* argc, char*** argv) : exceptions_at_construction_(std::uncaught_exceptions()) {
  std::set_terminate(end_the_job);
  int found = MPI_THREAD_SINGLE;
  check(MPI_Init_thread(argc, argv, MPI_THREAD_MULTIPLE, &found), "initialise");
  if (found < MPI_THREAD_MULTIPLE) {
    // Every rank finds the same, so that the collective end cannot hang.
    MPI_Finalize();
    throw EnvironmentError(fmt::format(
        "This MPI gives {}, but every communication lane needs MPI_THREAD_MULTIPLE. Use an MPI built with full thread "
        "support (Open MPI: any of today; MPICH: --enable-threads=multiple; Cray MPICH: "
        "MPICH_MAX_THREAD_SAFETY=multiple).",
        thread_level(found)));
  }
  check(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN), "set the error handler");
  world_.emplace(Communicator::from(MPI_COMM_WORLD));
  world_->learn_nodes();
  abort_arbitration_.emplace(*world_);
  set_abort_arbitration(&*abort_arbitration_);
}

Session::~Session() {
  if (std::uncaught_exceptions() > exceptions_at_construction_)
    abort_job(ExitCode::bug,
              "An exception left the part of the program that uses MPI. Report this as a bug in Trireme.");
  set_mpi_ending();
  world_.reset();
  MPI_Finalize();
  abort_arbitration_->set_finalized();
  for (Backoff backoff; !unfinalized_ranks().empty();)
    if (!backoff.brief()) backoff.sleep();
  set_abort_arbitration(nullptr);
}

}  // namespace trireme::mpi
