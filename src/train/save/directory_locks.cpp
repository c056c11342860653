// SPDX-License-Identifier: Apache-2.0
#include "train/save/directory_locks.hpp"

#include "trireme/train/save/checkpointing.hpp"
#include "trireme/train/save/output_directory.hpp"

namespace trireme::train {

void DirectoryLocks::take(const config::RunConfig& config) {
  create_output_directory(config);
  locks_.push_back(std::make_unique<supervise::DirectoryLock>(config.run.output, "run.output"));
  prepare_output_directory(config);
  if (!saves_checkpoints(config)) return;
  locks_.push_back(std::make_unique<supervise::DirectoryLock>(config.checkpoint.directory, "checkpoint.directory"));
}

}  // namespace trireme::train
