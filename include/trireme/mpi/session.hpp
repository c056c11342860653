// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>

#include "trireme/mpi/abort_arbitration.hpp"
#include "trireme/mpi/communicator.hpp"

namespace trireme::mpi {

/// MPI between initialisation and finalisation. Lives in `main` only, and outlives every other communicator.
class Session {
 public:
  /// Initialises MPI with MPI_THREAD_MULTIPLE: every lane calls it from a separate thread. Afterwards an
  /// uncaught exception, on any thread, ends the job (`abort_job`). Collective over the job.
  /// Throws EnvironmentError if this MPI provides a lower level.
  Session(int* argc, char*** argv);
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;
  /// Finalises MPI, which is collective, and waits until the other ranks of the node have done so: a launcher waits for
  /// ever for one that stops there. While an exception unwinds the stack it ends the job instead (`abort_job`).
  ~Session();

  /// All ranks of the job, in a message space of our own.
  [[nodiscard]] const Communicator& world() const { return *world_; }

 private:
  std::optional<Communicator> world_;
  std::optional<AbortArbitration> abort_arbitration_;
  int exceptions_at_construction_ = 0;
};

}  // namespace trireme::mpi
