// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <source_location>
#include <string_view>

#include "trireme/comm/mpi.hpp"
#include "trireme/comm/wait.hpp"

namespace trireme::comm {

/// Waits for a nonblocking operation with back-off, so that ranks which wait for a slow one (for its disk, say) leave
/// their cores to whoever computes. code: what the call that began it returned.
inline void await(int code, MPI_Request& request, std::string_view what,
                  std::source_location where = std::source_location::current()) {
  check(code, what, where);
  Backoff backoff;
  for (int done = 0; done == 0;) {
    check(MPI_Test(&request, &done, MPI_STATUS_IGNORE), what, where);
    if (done == 0 && !backoff.brief()) backoff.sleep();
  }
}

}  // namespace trireme::comm
