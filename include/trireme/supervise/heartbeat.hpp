// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <thread>

namespace trireme::supervise {

/// When the file was written last, in nanoseconds as its file system has it; 0: there is none.
[[nodiscard]] std::int64_t heartbeat_time(const std::string& path);

/// Shows the ranks of a job that a rank still works while all others wait for it outside of collectives (the end of a
/// save, an export), by the modification time of a shared file. Nothing is written in work shorter than a
/// quarter of the timeout. Any thread may call it.
class Heartbeat {
 public:
  using Clock = std::chrono::steady_clock;

  /// path: on a file system that all ranks see. before: its `heartbeat_time` now, which one rank looks up for all.
  Heartbeat(std::string path, double timeout_seconds, std::int64_t before);

  /// Work on files begins: it may be short.
  void begin() { beaten_ = Clock::now(); }
  /// This rank has made progress.
  void beat();
  /// The latest heartbeat of any rank seen by this one; reads it again after a twentieth of the timeout.
  [[nodiscard]] Clock::time_point last();

  [[nodiscard]] double timeout_seconds() const { return timeout_seconds_; }

 private:
  std::string path_;
  double timeout_seconds_;
  std::atomic<std::int64_t> file_time_;  ///< `heartbeat_time`
  std::atomic<Clock::time_point> seen_{}, looked_{}, beaten_{Clock::now()};
};

/// Work outside the training step, for as long as one lives: reading, writing or removing files. While bytes move or
/// files are done with (`io::handled_files`), the rank is not stuck, however long it takes: `on_progress` is called,
/// and the others see the heartbeat. So it is while a file is flushed to disk, for ten timeouts at most.
class FileWork {
 public:
  /// heartbeat: outlives this. on_progress: called from another thread.
  FileWork(Heartbeat& heartbeat, std::function<void()> on_progress);
  FileWork(const FileWork&) = delete;
  FileWork& operator=(const FileWork&) = delete;
  ~FileWork();

 private:
  void watch(const std::stop_token& stop) const;

  Heartbeat& heartbeat_;
  std::function<void()> on_progress_;
  std::jthread thread_;
};

/// Bytes that this process has read and written through the kernel since it began; 0 if it does not count them.
[[nodiscard]] std::int64_t bytes_moved();

}  // namespace trireme::supervise
