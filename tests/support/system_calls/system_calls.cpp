// SPDX-License-Identifier: Apache-2.0
//
// Preloaded into a program (LD_PRELOAD), it logs the system calls that change files, and lets chosen ones fail.
//
//   SYSTEM_CALLS_LOG=FILE     appends a line per successful call: RANK PID CALL PATH [PATH]; all ranks write to one
//   FILE SYSTEM_CALLS_RULES=FILE   read at every call, so that a test changes it while a run goes on; a line per rule:
//                             CALL RANK NTH WHAT PART
//
// A rule applies to the NTH matching call of a process and those after it, or to those from NTH to LAST where it says
// NTH-LAST (counted since FILE changed), by RANK (or any), on a path that contains PART, or ends with what stands
// before a last $. WHAT: the name of an errno, sleep=SECONDS (then the call is made), or done (success is returned, the
// call is not made). CALL: create (an open with O_CREAT), open, read, write, truncate, allocate, fsync, flock, mkdir,
// rename, unlink, kill (its "path" is the process id), thread (pthread_create; its "path" is "thread").
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <mutex>
#include <string>
#include <vector>

namespace {

struct Rule {
  std::string call;
  std::string rank;
  long nth = 1;
  long last = LONG_MAX;
  std::string what;
  std::string part;
  long seen = 0;
};

enum class Answer { make_the_call, fail, done };

std::string environment(const char* name) {
  const char* text = std::getenv(name);
  return text == nullptr ? "" : text;
}

std::string rank() {
  for (const char* name : {"OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK"})
    if (const char* text = std::getenv(name)) return text;
  return "0";
}

/// The whole of a small file; raw system calls, as ours would come back here.
std::string contents(const std::string& path) {
  const auto file = static_cast<int>(::syscall(SYS_openat, AT_FDCWD, path.c_str(), O_RDONLY | O_CLOEXEC));
  if (file < 0) return "";
  std::array<char, 4096> text{};
  const long got = ::syscall(SYS_read, file, text.data(), text.size());
  ::syscall(SYS_close, file);
  return {text.data(), static_cast<std::size_t>(got < 0 ? 0 : got)};
}

std::vector<Rule> parsed(const std::string& text) {
  std::vector<Rule> rules;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    std::array<char, 16> call{};
    std::array<char, 16> rank{};
    std::array<char, 32> what{};
    std::array<char, 512> part{};
    std::array<char, 32> range{};
    Rule rule;
    if (std::sscanf(text.substr(at, end - at).c_str(), "%15s %15s %31s %31s %511s", call.data(), rank.data(),
                    range.data(), what.data(), part.data()) == 5 &&
        std::sscanf(range.data(), "%ld-%ld", &rule.nth, &rule.last) >= 1) {
      rule.call = call.data();
      rule.rank = rank.data();
      rule.what = what.data();
      rule.part = part.data();
      rules.push_back(rule);
    }
    at = end + 1;
  }
  return rules;
}

int error_named(const std::string& name) {
  for (int error = 1; error < 140; ++error)
    if (const char* known = strerrorname_np(error); known != nullptr && name == known) return error;
  std::fprintf(stderr, "system_calls: no errno %s\n", name.c_str());
  std::abort();
}

void sleep_for(double seconds) {
  timespec left{.tv_sec = static_cast<time_t>(seconds), .tv_nsec = 0};
  left.tv_nsec = static_cast<long>((seconds - static_cast<double>(left.tv_sec)) * 1e9);
  while (::nanosleep(&left, &left) != 0 && errno == EINTR) {
  }
}

bool concerns(const Rule& rule, const std::string& path) {
  if (!rule.part.ends_with('$')) return path.find(rule.part) != std::string::npos;
  return path.ends_with(rule.part.substr(0, rule.part.size() - 1));
}

/// What the rules say of this call.
Answer judge(const char* call, const std::string& path) {
  static const std::string file = environment("SYSTEM_CALLS_RULES");
  if (file.empty()) return Answer::make_the_call;
  static std::mutex mutex;
  static std::string text;
  static std::vector<Rule> rules;
  const int kept = errno;
  std::string what;
  {
    const std::lock_guard lock(mutex);
    if (std::string now = contents(file); now != text) {
      rules = parsed(now);
      text = std::move(now);
    }
    for (Rule& rule : rules)
      if (rule.call == call && (rule.rank == "any" || rule.rank == rank()) && concerns(rule, path) &&
          ++rule.seen >= rule.nth && rule.seen <= rule.last)
        what = rule.what;
  }
  errno = kept;
  if (what.empty()) return Answer::make_the_call;
  if (what == "done") return Answer::done;
  if (what.starts_with("sleep=")) {
    sleep_for(std::atof(what.c_str() + 6));
    errno = kept;
    return Answer::make_the_call;
  }
  errno = error_named(what);
  return Answer::fail;
}

void note(const char* call, const std::string& path) {
  static const std::string file = environment("SYSTEM_CALLS_LOG");
  if (file.empty() || !path.starts_with('/') || path.starts_with("/dev/") || path.starts_with("/proc/")) return;
  if (std::strcmp(call, "open") == 0) return;  // reads are many, and change nothing
  const int kept = errno;
  const std::string line = rank() + " " + std::to_string(::getpid()) + " " + call + " " + path + "\n";
  const auto log =
      static_cast<int>(::syscall(SYS_openat, AT_FDCWD, file.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666));
  if (log < 0 || ::syscall(SYS_write, log, line.data(), line.size()) != static_cast<long>(line.size())) std::abort();
  ::syscall(SYS_close, log);
  errno = kept;
}

std::string path_of(int descriptor) {
  const int kept = errno;
  const std::string link = "/proc/self/fd/" + std::to_string(descriptor);
  std::array<char, PATH_MAX> text{};
  const ssize_t got = ::readlink(link.c_str(), text.data(), text.size());
  errno = kept;
  return {text.data(), static_cast<std::size_t>(got < 0 ? 0 : got)};
}

/// `path` from the root, seen from the directory `from`; nothing in it is resolved.
std::string absolute(int from, const char* path) {
  if (path[0] == '/') return path;
  const int kept = errno;
  std::string directory = from == AT_FDCWD ? "" : path_of(from);
  if (std::array<char, PATH_MAX> text{}; from == AT_FDCWD && ::getcwd(text.data(), text.size()) != nullptr)
    directory = text.data();
  errno = kept;
  return directory + "/" + path;
}

/// The function of this name that would have been called without us.
template <class Function>
Function* original(const char* name) {
  return reinterpret_cast<Function*>(::dlsym(RTLD_NEXT, name));
}

/// Makes `make` unless a rule forbids it, and logs what went well.
template <class Make>
auto answered(const char* call, const std::string& path, Make&& make) -> decltype(make()) {
  const Answer answer = judge(call, path);
  if (answer == Answer::fail) return -1;
  if (answer == Answer::done) return 0;
  const auto result = make();
  if (result >= 0) note(call, path);
  return result;
}

template <class Make>
auto on_descriptor(const char* call, int descriptor, Make&& make) {
  return answered(call, path_of(descriptor), make);
}

template <class Make>
int opened(int from, const char* path, int flags, Make&& make) {
  return answered((flags & O_CREAT) != 0 ? "create" : "open", absolute(from, path), make);
}

template <class Make>
std::FILE* opened(const char* path, const char* mode, Make&& make) {
  const std::string full = absolute(AT_FDCWD, path);
  const char* const call = mode[0] == 'r' ? "open" : "create";
  if (judge(call, full) == Answer::fail) return nullptr;
  std::FILE* const file = make();
  if (file != nullptr) note(call, full);
  return file;
}

mode_t mode_of(int flags, std::va_list list) {
  return (flags & (O_CREAT | __O_TMPFILE)) != 0 ? static_cast<mode_t>(va_arg(list, int)) : 0;
}

}  // namespace

// The functions of the C library by their own names. The 64 are what 32-bit offsets made necessary.
#define INTERPOSE(name, type) static auto* const next = original<type>(name)

extern "C" {

int open(const char* path, int flags, ...) {
  std::va_list list;
  va_start(list, flags);
  const mode_t mode = mode_of(flags, list);
  va_end(list);
  INTERPOSE("open", int(const char*, int, ...));
  return opened(AT_FDCWD, path, flags, [&] { return next(path, flags, mode); });
}
int open64(const char* path, int flags, ...) {
  std::va_list list;
  va_start(list, flags);
  const mode_t mode = mode_of(flags, list);
  va_end(list);
  INTERPOSE("open64", int(const char*, int, ...));
  return opened(AT_FDCWD, path, flags, [&] { return next(path, flags, mode); });
}
int openat(int from, const char* path, int flags, ...) {
  std::va_list list;
  va_start(list, flags);
  const mode_t mode = mode_of(flags, list);
  va_end(list);
  INTERPOSE("openat", int(int, const char*, int, ...));
  return opened(from, path, flags, [&] { return next(from, path, flags, mode); });
}
std::FILE* fopen(const char* path, const char* mode) {
  INTERPOSE("fopen", std::FILE * (const char*, const char*));
  return opened(path, mode, [&] { return next(path, mode); });
}
std::FILE* fopen64(const char* path, const char* mode) {
  INTERPOSE("fopen64", std::FILE * (const char*, const char*));
  return opened(path, mode, [&] { return next(path, mode); });
}
ssize_t pread(int file, void* bytes, size_t count, off_t offset) {
  INTERPOSE("pread", ssize_t(int, void*, size_t, off_t));
  return judge("read", path_of(file)) == Answer::fail ? -1 : next(file, bytes, count, offset);
}
ssize_t pread64(int file, void* bytes, size_t count, off64_t offset) {
  INTERPOSE("pread64", ssize_t(int, void*, size_t, off64_t));
  return judge("read", path_of(file)) == Answer::fail ? -1 : next(file, bytes, count, offset);
}
ssize_t write(int file, const void* bytes, size_t count) {
  INTERPOSE("write", ssize_t(int, const void*, size_t));
  return on_descriptor("write", file, [&] { return next(file, bytes, count); });
}
ssize_t pwrite(int file, const void* bytes, size_t count, off_t offset) {
  INTERPOSE("pwrite", ssize_t(int, const void*, size_t, off_t));
  return on_descriptor("write", file, [&] { return next(file, bytes, count, offset); });
}
ssize_t pwrite64(int file, const void* bytes, size_t count, off64_t offset) {
  INTERPOSE("pwrite64", ssize_t(int, const void*, size_t, off64_t));
  return on_descriptor("write", file, [&] { return next(file, bytes, count, offset); });
}
ssize_t writev(int file, const iovec* parts, int count) {
  INTERPOSE("writev", ssize_t(int, const iovec*, int));
  return on_descriptor("write", file, [&] { return next(file, parts, count); });
}
ssize_t pwritev(int file, const iovec* parts, int count, off_t offset) {
  INTERPOSE("pwritev", ssize_t(int, const iovec*, int, off_t));
  return on_descriptor("write", file, [&] { return next(file, parts, count, offset); });
}
int ftruncate(int file, off_t bytes) noexcept {
  INTERPOSE("ftruncate", int(int, off_t));
  return on_descriptor("truncate", file, [&] { return next(file, bytes); });
}
int ftruncate64(int file, off64_t bytes) noexcept {
  INTERPOSE("ftruncate64", int(int, off64_t));
  return on_descriptor("truncate", file, [&] { return next(file, bytes); });
}
int fallocate(int file, int mode, off_t offset, off_t bytes) {
  INTERPOSE("fallocate", int(int, int, off_t, off_t));
  return on_descriptor("allocate", file, [&] { return next(file, mode, offset, bytes); });
}
int fsync(int file) {
  INTERPOSE("fsync", int(int));
  return on_descriptor("fsync", file, [&] { return next(file); });
}
int fdatasync(int file) {
  INTERPOSE("fdatasync", int(int));
  return on_descriptor("fsync", file, [&] { return next(file); });
}
int flock(int file, int how) noexcept {
  INTERPOSE("flock", int(int, int));
  return on_descriptor("flock", file, [&] { return next(file, how); });
}
int mkdir(const char* path, mode_t mode) noexcept {
  INTERPOSE("mkdir", int(const char*, mode_t));
  return answered("mkdir", absolute(AT_FDCWD, path), [&] { return next(path, mode); });
}
int rename(const char* from, const char* to) noexcept {
  INTERPOSE("rename", int(const char*, const char*));
  return answered("rename", absolute(AT_FDCWD, from) + " " + absolute(AT_FDCWD, to), [&] { return next(from, to); });
}
int renameat2(int from_directory, const char* from, int to_directory, const char* to, unsigned flags) noexcept {
  INTERPOSE("renameat2", int(int, const char*, int, const char*, unsigned));
  const char* const call = (flags & 2U) != 0 ? "exchange" : "rename";  // RENAME_EXCHANGE
  return answered(call, absolute(from_directory, from) + " " + absolute(to_directory, to),
                  [&] { return next(from_directory, from, to_directory, to, flags); });
}
int unlink(const char* path) noexcept {
  INTERPOSE("unlink", int(const char*));
  return answered("unlink", absolute(AT_FDCWD, path), [&] { return next(path); });
}
int unlinkat(int from, const char* path, int flags) noexcept {
  INTERPOSE("unlinkat", int(int, const char*, int));
  return answered("unlink", absolute(from, path), [&] { return next(from, path, flags); });
}
int remove(const char* path) noexcept {
  INTERPOSE("remove", int(const char*));
  return answered("unlink", absolute(AT_FDCWD, path), [&] { return next(path); });
}
int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*begin)(void*), void* with) noexcept {
  INTERPOSE("pthread_create", int(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*));
  return judge("thread", "thread") == Answer::fail ? errno : next(thread, attributes, begin, with);
}
int kill(pid_t process, int signal) noexcept {
  INTERPOSE("kill", int(pid_t, int));
  return answered("kill", std::to_string(process), [&] { return next(process, signal); });
}

}  // extern "C"
