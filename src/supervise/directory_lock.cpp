// SPDX-License-Identifier: Apache-2.0
#include "trireme/supervise/directory_lock.hpp"

#include <fcntl.h>
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <mutex>
#include <string_view>

#include "trireme/base/error.hpp"
#include "trireme/base/io/flush.hpp"
#include "trireme/base/io/truncate.hpp"
#include "trireme/base/log.hpp"
#include "trireme/base/process.hpp"
#include "trireme/mpi/topology.hpp"

namespace trireme::supervise {
namespace {

using std::chrono::milliseconds;

constexpr int tries = 20;  // a job that was just killed may be a moment from its end
constexpr milliseconds between_tries(100);
constexpr milliseconds until_others_wrote(1000);
constexpr double signs_waited_for = 2.5;

/// Holder of a lock, as recorded in its file.
struct Holder {
  std::string job;    ///< Slurm's number, or empty
  std::string step;   ///< of that job
  long restarts = 0;  ///< of that job
  Life life;
  std::string host;
  pid_t pid = 0;
  std::string pids;     ///< where that number is a process's: `numbers_of_processes`
  std::string started;  ///< when its process did, as the kernel counts
  std::string since;

  [[nodiscard]] bool nobody() const { return pid == 0; }
  [[nodiscard]] std::string text() const {
    const std::string slurm =
        job.empty() ? "" : fmt::format("job {}{}, ", job, step.empty() ? "" : fmt::format(", step {}", step));
    return fmt::format("{}process {} on {}, since {}", slurm, pid, host, since);
  }
};

std::string variable(const char* name) {
  const char* text = std::getenv(name);
  return text == nullptr ? "" : text;
}

long restarts() { return std::atol(variable("SLURM_RESTART_COUNT").c_str()); }

/// This boot of this machine, and the container: elsewhere a process may have the same number.
std::string numbers_of_processes() {
  std::string boot;
  std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), boot);
  std::error_code error;
  const std::string container = std::filesystem::read_symlink("/proc/self/ns/pid", error).string();
  return boot.empty() || container.empty() ? "" : boot + "/" + container;
}

/// Text after `key` and a blank on a separate line.
std::string field(const std::string& text, const std::string& key) {
  const std::size_t at = ("\n" + text).find("\n" + key + " ");
  if (at == std::string::npos) return "";
  const std::size_t begin = at + key.size() + 1;
  return text.substr(begin, text.find('\n', begin) - begin);
}

Holder holder_of(const std::string& text) {
  return {.job = field(text, "job"),
          .step = field(text, "step"),
          .restarts = std::atol(field(text, "restarts").c_str()),
          .life = life_of(field(text, "life")),
          .host = field(text, "host"),
          .pid = static_cast<pid_t>(std::atol(field(text, "pid").c_str())),
          .pids = field(text, "pids"),
          .started = field(text, "started"),
          .since = field(text, "since")};
}

Holder holder_in(int descriptor) {
  std::string text(4096, '\0');
  const ssize_t got = ::pread(descriptor, text.data(), text.size(), 0);
  text.resize(static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
  return holder_of(text);
}

timespec changed(int descriptor) {
  struct stat status {};
  ::fstat(descriptor, &status);
  return status.st_mtim;
}

/// Whether the holder's heartbeat changes within `seconds`.
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

/// Whether the holder's process is there, on this node.
bool runs_here(const Holder& holder) {
  if (holder.pid == ::getpid() || process_has_ended(holder.pid)) return false;
  const std::string started = process_start(holder.pid);
  return started.empty() || holder.started.empty() || started == holder.started;  // or the number is another's now
}

/// Whether the recorded holder still runs, if the lock itself does not show it.
bool lives(const Holder& holder, int descriptor, bool locked, double heartbeat_seconds) {
  if (holder.nobody()) return false;
  // Slurm restarts a job only when all of it has ended. One start has many steps.
  if (!holder.job.empty() && holder.job == variable("SLURM_JOB_ID") && holder.restarts < restarts()) return false;
  const Life mine = life_of(variable("TRIREME_LIFE"));
  if (!mine.id.empty() && holder.life.id == mine.id && holder.life.number < mine.number) return false;
  if (holder.host == mpi::hostname()) {
    if (locked) return false;  // the kernel has released the lock
    if (runs_here(holder)) return true;
    if (!holder.pids.empty() && holder.pids == numbers_of_processes()) return false;
  }
  log::info(fmt::format("{} may still hold the lock: checking whether it is alive", holder.text()));
  return shows_life(descriptor, signs_waited_for * heartbeat_seconds);
}

[[noreturn]] void refuse(const std::string& what, const Holder& holder, const std::string& path) {
  throw CheckpointError(fmt::format("{} is in use by another job: {} ({}). Wait for its end, or set another directory.",
                                    what, holder.nobody() ? "it is just starting" : holder.text(), path));
}

/// Makes `text` all that the file holds, on the disk: 0, or errno. Network file systems let signals interrupt each
/// call.
int overwrite(int descriptor, std::string_view text) {
  if (io::truncate(descriptor, 0) != 0) return errno;
  for (std::size_t at = 0; at < text.size();) {
    const ssize_t put = ::pwrite(descriptor, text.data() + at, text.size() - at, static_cast<off_t>(at));
    if (put < 0 && errno == EINTR) continue;
    if (put <= 0) return put < 0 ? errno : ENOSPC;
    at += static_cast<std::size_t>(put);
  }
  // EINVAL: a file system that cannot flush; other hosts see the text all the same.
  return io::flush_to_disk(descriptor) != 0 && errno != EINVAL ? errno : 0;
}

}  // namespace

Life life_of(const std::string& text) {
  const std::size_t blank = text.find(' ');
  if (blank == std::string::npos) return {};
  return {.id = text.substr(0, blank), .number = std::atol(text.c_str() + blank)};
}

DirectoryLock::DirectoryLock(const std::string& directory, const std::string& what, double heartbeat_seconds)
    : path_(directory + "/.job.lock") {
  std::error_code ignored;
  const std::filesystem::file_status found = std::filesystem::symlink_status(path_, ignored);
  if (std::filesystem::exists(found) && !std::filesystem::is_regular_file(found))
    throw WriteError(fmt::format("{}: is not a regular file; remove it if no job uses {}", path_, directory));
  descriptor_ = ::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW, 0666);
  if (descriptor_ < 0)
    throw WriteError(fmt::format("{}: cannot be created: {}; set {} to a directory that you may write to", path_,
                                 std::strerror(errno), what));
  try {
    take(fmt::format("{} {}", what, directory), heartbeat_seconds);
  } catch (...) {
    ::close(descriptor_);
    throw;
  }
  heartbeat_ = std::jthread([this, heartbeat_seconds](const std::stop_token& stop) {
    std::mutex mutex;
    std::condition_variable_any wake;
    std::unique_lock lock(mutex);
    const std::chrono::duration<double> pause(heartbeat_seconds);
    while (!wake.wait_for(lock, stop, pause, [&] { return stop.stop_requested(); })) ::futimens(descriptor_, nullptr);
  });
}

void DirectoryLock::take(const std::string& what, double heartbeat_seconds) {
  int failed = 0;
  for (int i = 0; i < tries; ++i) {
    failed = ::flock(descriptor_, LOCK_EX | LOCK_NB) == 0 ? 0 : errno;
    if (failed != EWOULDBLOCK && failed != EINTR) break;
    std::this_thread::sleep_for(between_tries);
  }
  const Holder holder = holder_in(descriptor_);
  if (failed == EWOULDBLOCK || lives(holder, descriptor_, failed == 0, heartbeat_seconds)) refuse(what, holder, path_);
  if (!holder.nobody()) log::info(fmt::format("the lock of {} was left behind ({}): taken over", what, holder.text()));
  const std::string mine = write_owner();
  if (failed != 0) make_sure(what, mine);
}

std::string DirectoryLock::write_owner() const {
  const std::string job = variable("SLURM_JOB_ID");
  std::string text;
  if (!job.empty()) text = fmt::format("job {}\nstep {}\nrestarts {}\n", job, variable("SLURM_STEP_ID"), restarts());
  if (const std::string life = variable("TRIREME_LIFE"); !life_of(life).id.empty())
    text += fmt::format("life {}\n", life);
  text += fmt::format("host {}\npid {}\npids {}\nstarted {}\nsince {:%Y-%m-%d %H:%M:%S}\n", mpi::hostname(), ::getpid(),
                      numbers_of_processes(), process_start(::getpid()), fmt::localtime(std::time(nullptr)));
  if (const int error = overwrite(descriptor_, text); error != 0)
    throw WriteError(
        fmt::format("{}: cannot be written: {}; free space, or check the permissions", path_, std::strerror(error)));
  return text;
}

void DirectoryLock::make_sure(const std::string& what, const std::string& mine) const {
  std::this_thread::sleep_for(until_others_wrote);
  std::ifstream file(path_);  // opened again: network file systems look again then
  const std::string now(std::istreambuf_iterator<char>(file), {});
  if (now != mine) refuse(what, holder_of(now), path_);
}

DirectoryLock::~DirectoryLock() {
  heartbeat_ = {};
  if (::ftruncate(descriptor_, 0) != 0) log::debug(path_ + ": cannot be emptied");
  ::close(descriptor_);
}

}  // namespace trireme::supervise
