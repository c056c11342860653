// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "trireme/mpi/communicator.hpp"
#include "trireme/mpi/wait.hpp"

namespace trireme::mpi {

/// MPI operations in flight on one communicator. Waits by testing with back-off, and can list the ranks whose messages
/// are missing.
class Requests {
 public:
  explicit Requests(const Communicator& communicator) : communicator_(&communicator) {}
  Requests(const Requests&) = delete;
  Requests& operator=(const Requests&) = delete;
  /// Abandons operations still in flight (only after a wait has thrown).
  ~Requests();

  /// Nothing is sent for `bytes` <= 0; long messages go in pieces (MPI's counts are int).
  void send(const void* from, std::int64_t bytes, int to);
  void receive(void* into, std::int64_t bytes, int from);
  /// A nonblocking collective: room for its request, whose peers are not known.
  MPI_Request* collective();

  void wait_all(Wait& wait);

 private:
  struct Peer {
    std::optional<int> rank;  ///< absent: a collective, which waits for whomever
    bool sends = false;
  };
  [[nodiscard]] std::string missing() const;

  const Communicator* communicator_;
  std::vector<MPI_Request> requests_;
  std::vector<Peer> peers_;  // by request
};

}  // namespace trireme::mpi
