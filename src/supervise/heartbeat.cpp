// SPDX-License-Identifier: Apache-2.0
#include "trireme/supervise/heartbeat.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <fstream>
#include <mutex>
#include <optional>
#include <system_error>

#include "supervise/bounded_duration.hpp"
#include "trireme/base/io/flush.hpp"
#include "trireme/base/io/handled_files.hpp"
#include "trireme/base/log.hpp"
#include "trireme/base/running_time.hpp"

namespace trireme::supervise {
namespace {

/// The counters themselves are read, and a launcher may talk: less than this between two looks is no progress.
constexpr std::int64_t least_bytes = 512;

/// A flush to disk has no byte count that this process could read. Limit, in timeouts, for a slow disk.
constexpr double timeouts_of_a_flush = 10;

}  // namespace

std::int64_t heartbeat_time(const std::string& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) return 0;
  return std::int64_t{status.st_mtim.tv_sec} * 1'000'000'000 + status.st_mtim.tv_nsec;
}

std::int64_t bytes_moved() {
  std::ifstream file("/proc/self/io");
  std::int64_t sum = 0, bytes = 0;
  std::string key;
  while (file >> key >> bytes)
    if (key == "rchar:" || key == "wchar:") sum += bytes;
  return sum;
}

Heartbeat::Heartbeat(std::string path, double timeout_seconds, std::int64_t before)
    : path_(std::move(path)), timeout_seconds_(timeout_seconds), file_time_(before) {}

void Heartbeat::beat() {
  const Clock::time_point now = Clock::now();
  if (now - beaten_.load() < bounded_duration(timeout_seconds_ / 4)) return;
  beaten_ = now;
  const int file = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW, 0666);
  if (file < 0) return;
  (void)::futimens(file, nullptr);
  ::close(file);
}

Heartbeat::Clock::time_point Heartbeat::last() {
  const Clock::time_point now = Clock::now();
  if (now - looked_.load() < bounded_duration(timeout_seconds_ / 20)) return seen_;
  looked_ = now;
  const std::int64_t time = heartbeat_time(path_);
  if (time != 0 && file_time_.exchange(time) != time) seen_ = now;
  return seen_;
}

FileWork::FileWork(Heartbeat& heartbeat, std::function<void()> on_progress)
    : heartbeat_(heartbeat), on_progress_(std::move(on_progress)) {
  try {
    thread_ = std::jthread([this](const std::stop_token& stop) { watch(stop); });
  } catch (const std::system_error& error) {
    static std::atomic_flag warned;
    if (warned.test_and_set()) return;
    log::warning(
        fmt::format("no thread can be started to watch work on files ({}), which may take {} s now; raise ulimit -u",
                    error.what(), heartbeat_.timeout_seconds()));
  }
}

FileWork::~FileWork() = default;

void FileWork::watch(const std::stop_token& stop) const {
  heartbeat_.begin();
  const auto look = bounded_duration(std::clamp(heartbeat_.timeout_seconds() / 10, 0.01, 1.0));
  const double longest_flush_seconds = timeouts_of_a_flush * heartbeat_.timeout_seconds();
  std::mutex mutex;
  std::condition_variable_any wake;
  std::int64_t before = bytes_moved(), files_before = io::handled_files();
  while (!stop.stop_requested()) {
    {
      std::unique_lock lock(mutex);
      wake.wait_for(lock, stop, look, [] { return false; });
    }
    const std::int64_t now = bytes_moved(), files_now = io::handled_files();
    const std::optional<Heartbeat::Clock::time_point> flushing = io::flushing_since();
    if (now - before >= least_bytes || files_now != files_before ||
        (flushing && running_seconds(*flushing) < longest_flush_seconds)) {
      on_progress_();
      heartbeat_.beat();
    }
    before = now;
    files_before = files_now;
  }
}

}  // namespace trireme::supervise
