// SPDX-License-Identifier: Apache-2.0
#include "trireme/mpi/broadcast.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "mpi/await.hpp"
#include "trireme/mpi/communicator.hpp"
#include "trireme/mpi/mpi.hpp"

namespace trireme::mpi {

std::string broadcast_text(const Communicator& communicator, std::string text, int root, std::size_t most_per_call,
                           std::string_view what) {
  auto size = static_cast<std::int64_t>(text.size());
  MPI_Request request = MPI_REQUEST_NULL;
  await(communicator, MPI_Ibcast(&size, 1, MPI_INT64_T, root, communicator.handle(), &request), request, what);
  text.resize(static_cast<std::size_t>(size));
  for (std::size_t at = 0; at < text.size(); at += most_per_call) {
    const int count = static_cast<int>(std::min(most_per_call, text.size() - at));
    await(communicator, MPI_Ibcast(text.data() + at, count, MPI_CHAR, root, communicator.handle(), &request), request,
          what);
  }
  return text;
}

}  // namespace trireme::mpi
