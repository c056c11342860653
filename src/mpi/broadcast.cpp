// SPDX-License-Identifier: Apache-2.0
#include "trireme/mpi/broadcast.hpp"

#include <cstdint>

#include "mpi/await.hpp"
#include "trireme/mpi/communicator.hpp"
#include "trireme/mpi/mpi.hpp"

namespace trireme::mpi {

std::string broadcast_text(const Communicator& communicator, std::string text, int root) {
  auto size = static_cast<std::int64_t>(text.size());
  MPI_Request request = MPI_REQUEST_NULL;
  await(communicator, MPI_Ibcast(&size, 1, MPI_INT64_T, root, communicator.handle(), &request), request,
        "broadcast the size of a text");
  text.resize(static_cast<std::size_t>(size));
  await(communicator, MPI_Ibcast(text.data(), static_cast<int>(size), MPI_CHAR, root, communicator.handle(), &request),
        request, "broadcast a text");
  return text;
}

}  // namespace trireme::mpi
