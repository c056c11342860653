// SPDX-License-Identifier: Apache-2.0
#include "trireme/cli/with_mpi.hpp"

#include <array>

#include "trireme/cli/launcher.hpp"
#include "trireme/comm/abort.hpp"
#include "trireme/comm/mpi.hpp"
#include "trireme/comm/session.hpp"

namespace trireme::cli {

std::string mpi_library() {
  std::array<char, MPI_MAX_LIBRARY_VERSION_STRING> library{};
  int length = 0;
  comm::check(MPI_Get_library_version(library.data(), &length), "ask for MPI's version");
  return {library.data(), static_cast<std::size_t>(length)};
}

void refuse_ranks_that_nobody_introduced() { check_introduction(launched(environment), environment, mpi_library()); }

int with_mpi(const std::function<int(const comm::Communicator& world)>& body) {
  const comm::Session session(nullptr, nullptr);
  try {
    return body(session.world());
  } catch (...) {
    comm::abort_job_for_current_exception();
  }
}

}  // namespace trireme::cli
