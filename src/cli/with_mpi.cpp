// SPDX-License-Identifier: Apache-2.0
#include "trireme/cli/with_mpi.hpp"

#include <array>

#include "trireme/cli/launcher.hpp"
#include "trireme/comm/abort.hpp"
#include "trireme/comm/mpi.hpp"
#include "trireme/comm/session.hpp"

namespace trireme::cli {

void refuse_ranks_that_nobody_introduced() {
  std::array<char, MPI_MAX_LIBRARY_VERSION_STRING> library{};
  int length = 0;
  MPI_Get_library_version(library.data(), &length);
  check_introduction(launched(environment), environment, library.data());
}

int with_mpi(const std::function<int(const comm::Communicator& world)>& body) {
  const comm::Session session(nullptr, nullptr);
  try {
    return body(session.world());
  } catch (...) {
    comm::abort_job_for_current_exception();
  }
}

}  // namespace trireme::cli
