// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <mpi.h>

#include <optional>
#include <string>

#include "support/temporary_directory.hpp"
#include "trireme/mpi/broadcast.hpp"
#include "trireme/mpi/communicator.hpp"

namespace trireme::test {

/// A new directory that all ranks see, gone when every rank's owner is. Collective, its end too.
class SharedDirectory {
 public:
  explicit SharedDirectory(const mpi::Communicator& world) : world_(world) {
    if (world.rank() == 0) directory_.emplace();
    path_ = mpi::broadcast_text(world, directory_ ? directory_->path() : "");
  }
  SharedDirectory(const SharedDirectory&) = delete;
  SharedDirectory& operator=(const SharedDirectory&) = delete;
  ~SharedDirectory() { MPI_Barrier(world_.handle()); }  // others may still look at it

  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  const mpi::Communicator& world_;
  std::optional<TemporaryDirectory> directory_;  ///< on rank 0
  std::string path_;
};

}  // namespace trireme::test
