// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <vector>

#include "trireme/config/run_config.hpp"
#include "trireme/supervise/directory_lock.hpp"

namespace trireme::train {

/// The directories that a run writes, locked while this lives: no other job may write there.
class DirectoryLocks {
 public:
  /// Creates and locks them (`prepare_output_directory`). On one rank. Throws CheckpointError, WriteError.
  void take(const config::RunConfig& config);

 private:
  std::vector<std::unique_ptr<supervise::DirectoryLock>> locks_;
};

}  // namespace trireme::train
