// SPDX-License-Identifier: Apache-2.0
#include "trireme/train/directory_lock.hpp"

#include <fcntl.h>
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <mutex>

#include "trireme/base/error.hpp"
#include "trireme/base/log.hpp"
#include "trireme/comm/topology.hpp"

namespace trireme::train {
namespace {

using std::chrono::milliseconds;

constexpr int tries = 20;  // a job that was just killed may be a moment from its end
constexpr milliseconds between_tries(100);
constexpr double signs_waited_for = 2.5;

/// Who holds a lock, as its file says.
struct Holder {
  std::string job;  ///< Slurm's number, or empty
  std::string host;
  pid_t pid = 0;
  std::string since;

  [[nodiscard]] bool nobody() const { return pid == 0; }
  [[nodiscard]] std::string text() const {
    return fmt::format("{}process {} on {}, since {}", job.empty() ? "" : fmt::format("job {}, ", job), pid, host,
                       since);
  }
};

std::string job_number() {
  const char* text = std::getenv("SLURM_JOB_ID");
  return text == nullptr ? "" : text;
}

/// What stands after `key` and a blank on a line of its own.
std::string field(const std::string& text, const std::string& key) {
  const std::size_t at = ("\n" + text).find("\n" + key + " ");
  if (at == std::string::npos) return "";
  const std::size_t begin = at + key.size() + 1;
  return text.substr(begin, text.find('\n', begin) - begin);
}

Holder holder_in(int descriptor) {
  std::string text(4096, '\0');
  const ssize_t got = ::pread(descriptor, text.data(), text.size(), 0);
  text.resize(static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
  return {.job = field(text, "job"),
          .host = field(text, "host"),
          .pid = static_cast<pid_t>(std::atol(field(text, "pid").c_str())),
          .since = field(text, "since")};
}

timespec changed(int descriptor) {
  struct stat status {};
  ::fstat(descriptor, &status);
  return status.st_mtim;
}

/// Whether the holder gives a sign of life while we look.
bool shows_life(int descriptor, double seconds) {
  const timespec before = changed(descriptor);
  const auto until = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  while (std::chrono::steady_clock::now() < until) {
    std::this_thread::sleep_for(between_tries);
    const timespec now = changed(descriptor);
    if (now.tv_sec != before.tv_sec || now.tv_nsec != before.tv_nsec) return true;
  }
  return false;
}

/// Whether the one that the file names still runs, when the lock itself does not say.
bool lives(const Holder& holder, int descriptor, bool locked, double sign_of_life_seconds) {
  if (holder.nobody() || (!holder.job.empty() && holder.job == job_number())) return false;  // requeued
  if (holder.host == comm::hostname()) return !locked && holder.pid != ::getpid() && ::kill(holder.pid, 0) == 0;
  log::info(fmt::format("{} may still hold the lock: looking for a sign of life", holder.text()));
  return shows_life(descriptor, signs_waited_for * sign_of_life_seconds);
}

}  // namespace

DirectoryLock::DirectoryLock(const std::string& directory, const std::string& what, double sign_of_life_seconds)
    : path_(directory + "/.job.lock"), descriptor_(::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666)) {
  if (descriptor_ < 0)
    throw WriteError(fmt::format("{}: cannot be created: {}; set {} to a directory that you may write to", path_,
                                 std::strerror(errno), what));
  try {
    take(fmt::format("{} {}", what, directory), sign_of_life_seconds);
  } catch (...) {
    ::close(descriptor_);
    throw;
  }
  signs_of_life_ = std::jthread([this, sign_of_life_seconds](const std::stop_token& stop) {
    std::mutex mutex;
    std::condition_variable_any wake;
    std::unique_lock lock(mutex);
    const std::chrono::duration<double> pause(sign_of_life_seconds);
    while (!wake.wait_for(lock, stop, pause, [&] { return stop.stop_requested(); })) ::futimens(descriptor_, nullptr);
  });
}

void DirectoryLock::take(const std::string& what, double sign_of_life_seconds) {
  int failed = 0;
  for (int i = 0; i < tries; ++i) {
    failed = ::flock(descriptor_, LOCK_EX | LOCK_NB) == 0 ? 0 : errno;
    if (failed != EWOULDBLOCK && failed != EINTR) break;
    std::this_thread::sleep_for(between_tries);
  }
  const Holder holder = holder_in(descriptor_);
  if (failed == EWOULDBLOCK || lives(holder, descriptor_, failed == 0, sign_of_life_seconds))
    throw CheckpointError(
        fmt::format("{} is in use by another job: {} ({}). Wait for its end, or set another directory.", what,
                    holder.nobody() ? "it is just starting" : holder.text(), path_));
  if (!holder.nobody()) log::info(fmt::format("the lock of {} was left behind ({}): taken over", what, holder.text()));
  say_whose();
}

void DirectoryLock::say_whose() const {
  const std::string job = job_number();
  const std::string text =
      fmt::format("{}host {}\npid {}\nsince {:%Y-%m-%d %H:%M:%S}\n", job.empty() ? "" : fmt::format("job {}\n", job),
                  comm::hostname(), ::getpid(), fmt::localtime(std::time(nullptr)));
  if (::ftruncate(descriptor_, 0) != 0 ||
      ::pwrite(descriptor_, text.data(), text.size(), 0) != static_cast<ssize_t>(text.size()))
    throw WriteError(
        fmt::format("{}: cannot be written: {}; free space, or check the permissions", path_, std::strerror(errno)));
}

DirectoryLock::~DirectoryLock() {
  signs_of_life_ = {};
  if (::ftruncate(descriptor_, 0) != 0) log::debug(path_ + ": cannot be emptied");
  ::close(descriptor_);
}

}  // namespace trireme::train
