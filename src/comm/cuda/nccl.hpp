// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nccl.h>

#include <source_location>
#include <string>
#include <string_view>

#include "trireme/mpi/communicator.hpp"
#include "trireme/mpi/wait.hpp"

namespace trireme::comm::nccl {

/// Throws EnvironmentError with NCCL's own text unless a call succeeded or goes on by itself. what: as an infinitive.
void check(ncclResult_t result, std::string_view what, ncclComm_t handle = nullptr,
           std::source_location where = std::source_location::current());

/// Owns one NCCL communicator, which never blocks the calling thread. The destructor is collective as a Communicator's:
/// while an exception unwinds the stack it gives the communicator up instead.
class Handle {
 public:
  /// Collective over `communicator`: its first rank's id goes round by MPI. The current CUDA device is this rank's.
  Handle(const mpi::Communicator& communicator, const mpi::Deadline& deadline);
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;
  ~Handle();

  [[nodiscard]] ncclComm_t get() const { return handle_; }
  /// Returns when what was called last has been launched. Throws as `check`, and where `wait` does.
  void launched(std::string_view what, mpi::Wait& wait) const;
  /// What became of the communicator: ncclSuccess, ncclInProgress or an error of this rank or another.
  [[nodiscard]] ncclResult_t state() const;

 private:
  ncclComm_t handle_ = nullptr;
  std::string others_;  ///< the ranks that this one may wait for
  int exceptions_at_construction_ = 0;
};

}  // namespace trireme::comm::nccl
