// SPDX-License-Identifier: Apache-2.0
#include "trireme/cli/with_mpi.hpp"

#include "trireme/comm/abort.hpp"
#include "trireme/comm/session.hpp"

namespace trireme::cli {

int with_mpi(const std::function<int(const comm::Communicator& world)>& body) {
  const comm::Session session(nullptr, nullptr);
  try {
    return body(session.world());
  } catch (...) {
    comm::abort_job_for_current_exception();
  }
}

}  // namespace trireme::cli
