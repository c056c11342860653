// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <source_location>
#include <string_view>

#include "trireme/mpi/communicator.hpp"
#include "trireme/mpi/mpi.hpp"
#include "trireme/mpi/wait.hpp"

namespace trireme::mpi {

/// Reports that other ranks have not called `what` by the deadline.
void report_late(const Deadline& deadline, std::string_view what);

/// Waits for a nonblocking operation with back-off, so that a long wait, such as for the disk of another rank, leaves
/// the core to computing threads; at most until the communicator's deadline. code: result of the initiating call.
inline void await(const Communicator& communicator, int code, MPI_Request& request, std::string_view what,
                  std::source_location where = std::source_location::current()) {
  check(code, what, where);
  const Clock::time_point began = Clock::now();
  const Deadline* const deadline = communicator.deadline();
  Backoff backoff;
  for (int done = 0;;) {
    check(MPI_Test(&request, &done, MPI_STATUS_IGNORE), what, where);
    if (done != 0) return;
    if (backoff.brief()) continue;
    if (deadline != nullptr && deadline->passed(began)) report_late(*deadline, what);
    backoff.sleep();
  }
}

}  // namespace trireme::mpi
