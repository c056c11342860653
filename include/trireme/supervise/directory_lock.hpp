// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <thread>

namespace trireme::supervise {

/// Keeps a directory for one job: two that write the same checkpoints would destroy both runs. The lock is the
/// operating system's, on a file `.job.lock` that says whose it is; it ends with the process, however that ends. Where
/// locks do not reach other nodes, or do not work at all, a sign of life in the file's time does.
class DirectoryLock {
 public:
  /// Takes `directory`, which exists. what: its key in the run file, for messages. Throws CheckpointError naming the
  /// job that holds it, WriteError when the file cannot be written. heartbeat_seconds: time between two.
  DirectoryLock(const std::string& directory, const std::string& what, double heartbeat_seconds = 10);
  DirectoryLock(const DirectoryLock&) = delete;
  DirectoryLock& operator=(const DirectoryLock&) = delete;
  /// Gives it back.
  ~DirectoryLock();

 private:
  void take(const std::string& what, double heartbeat_seconds);
  /// Writes into the file whose the directory is; returns that.
  [[nodiscard]] std::string write_owner() const;
  /// Two that start at once where nothing is locked both find no holder: the last one to write is the holder.
  void make_sure(const std::string& what, const std::string& mine) const;

  std::string path_;
  int descriptor_ = -1;
  std::jthread heartbeat_;
};

}  // namespace trireme::supervise
