// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "trireme/mpi/communicator.hpp"

namespace trireme::cli {

/// Initializes the libraries of the machine half for its lifetime, in the required order: MPI, libtorch's allocator and
/// threads, Kokkos.
class Libraries {
 public:
  /// device_threads: device.threads of the run file; 0: from affinity. Collective over the job.
  explicit Libraries(const mpi::Communicator& world, std::int64_t device_threads);
  ~Libraries();
  Libraries(const Libraries&) = delete;
  Libraries& operator=(const Libraries&) = delete;

 private:
  struct Kokkos;
  std::unique_ptr<Kokkos> kokkos_;
};

}  // namespace trireme::cli
