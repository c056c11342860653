// SPDX-License-Identifier: Apache-2.0
#include "trireme/mpi/together.hpp"

#include <fmt/format.h>

#include <cstdlib>
#include <optional>

#include "mpi/await.hpp"
#include "trireme/mpi/broadcast.hpp"
#include "trireme/mpi/communicator.hpp"
#include "trireme/mpi/mpi.hpp"

namespace trireme::mpi {

void together(const Communicator& communicator, const std::function<void()>& work) {
  std::optional<Error> failure;
  try {
    work();
  } catch (const Error& error) {
    failure = error;
  }
  const int mine = failure ? communicator.rank() : communicator.size();
  int first = 0;
  MPI_Request request = MPI_REQUEST_NULL;
  await(communicator, MPI_Iallreduce(&mine, &first, 1, MPI_INT, MPI_MIN, communicator.handle(), &request), request,
        "agree on a failure");
  if (first == communicator.size()) return;
  const bool prints = first == communicator.rank();
  std::string message;
  if (prints)
    message = fmt::format("{} {}{}", static_cast<int>(failure->code()),
                          first == 0 ? "" : fmt::format("[{}] ", communicator.name_of(first)), failure->what());
  message = broadcast_text(communicator, std::move(message), first);
  throw SharedError(static_cast<ExitCode>(std::atoi(message.c_str())), message.substr(message.find(' ') + 1), prints);
}

}  // namespace trireme::mpi
