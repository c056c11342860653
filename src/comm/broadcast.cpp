// SPDX-License-Identifier: Apache-2.0
#include "trireme/comm/broadcast.hpp"

#include <cstdint>

#include "trireme/comm/communicator.hpp"
#include "trireme/comm/mpi.hpp"

namespace trireme::comm {

std::string broadcast_text(const Communicator& communicator, std::string text, int root) {
  auto size = static_cast<std::int64_t>(text.size());
  check(MPI_Bcast(&size, 1, MPI_INT64_T, root, communicator.handle()), "broadcast the size of a text");
  text.resize(static_cast<std::size_t>(size));
  check(MPI_Bcast(text.data(), static_cast<int>(size), MPI_CHAR, root, communicator.handle()), "broadcast a text");
  return text;
}

}  // namespace trireme::comm
