// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <thread>

namespace trireme::supervise {

/// Value of TRIREME_LIFE, "ID N": start N of a run under `trireme supervise`, which ends all ranks between two starts.
struct Life {
  std::string id;  ///< empty: not supervised
  long number = 0;
};
[[nodiscard]] Life life_of(const std::string& text);

/// Reserves a directory for one job: two that write the same checkpoints would destroy both runs. Uses a lock of the
/// operating system on a file `.job.lock` that identifies the holder; it ends with the process in any case. On file
/// systems without locks across nodes, or without any, the modification time of the file serves as a heartbeat.
class DirectoryLock {
 public:
  /// Locks `directory`, which exists. what: its key in the run file, for messages. Throws CheckpointError with the job
  /// that holds it, WriteError when the file cannot be written. heartbeat_seconds: heartbeat interval.
  DirectoryLock(const std::string& directory, const std::string& what, double heartbeat_seconds = 10);
  DirectoryLock(const DirectoryLock&) = delete;
  DirectoryLock& operator=(const DirectoryLock&) = delete;
  /// Releases the lock.
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
