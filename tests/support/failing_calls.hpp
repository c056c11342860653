// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdarg>
#include <mutex>
#include <string>
#include <vector>

/// Wrappers of the C library's functions that read and flush files: they fail as configured, and are counted. Included
/// by one source of a program.
namespace trireme::test {

struct FailingCalls {
  std::string path{};  ///< part of it; empty: none fails
  int error = 0;
  int times = -1;  ///< of so many calls; -1: always
};

inline std::mutex calls_mutex;
inline FailingCalls failing_opens, failing_reads, failing_looks, failing_flushes;
inline std::string watched;              ///< part of a path
inline std::vector<std::string> opened;  ///< paths with it

/// Whether this call has to fail; sets errno then.
inline bool fails(FailingCalls& failing, const std::string& path) {
  const std::scoped_lock lock(calls_mutex);
  if (failing.path.empty() || failing.times == 0 || path.find(failing.path) == std::string::npos) return false;
  if (failing.times > 0) --failing.times;
  errno = failing.error;
  return true;
}

inline void all_calls_work() {
  const std::scoped_lock lock(calls_mutex);
  failing_opens = failing_reads = failing_looks = failing_flushes = {};
}

inline int open_or_fail(const char* path, int flags, mode_t mode) {
  {
    const std::scoped_lock lock(calls_mutex);
    if (!watched.empty() && std::string(path).find(watched) != std::string::npos) opened.emplace_back(path);
  }
  if (fails(failing_opens, path)) return -1;
  return static_cast<int>(::syscall(SYS_openat, AT_FDCWD, path, flags, mode));
}

inline std::string path_of(int descriptor) {
  std::string path(4096, '\0');
  const ssize_t size = ::readlink(("/proc/self/fd/" + std::to_string(descriptor)).c_str(), path.data(), path.size());
  path.resize(size < 0 ? 0 : static_cast<std::size_t>(size));
  return path;
}

inline ssize_t read_or_fail(int descriptor, void* bytes, std::size_t count, off_t offset) {
  if (!failing_reads.path.empty() && fails(failing_reads, path_of(descriptor))) return -1;
  return static_cast<ssize_t>(::syscall(SYS_pread64, descriptor, bytes, count, offset));
}

}  // namespace trireme::test

extern "C" {

inline mode_t trireme_test_mode(int flags, va_list rest) { return (flags & O_CREAT) != 0 ? va_arg(rest, mode_t) : 0; }

int open(const char* path, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  const mode_t mode = trireme_test_mode(flags, rest);
  va_end(rest);
  return trireme::test::open_or_fail(path, flags, mode);
}
int open64(const char* path, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  const mode_t mode = trireme_test_mode(flags, rest);
  va_end(rest);
  return trireme::test::open_or_fail(path, flags, mode);
}
ssize_t pread(int descriptor, void* bytes, std::size_t count, off_t offset) {
  return trireme::test::read_or_fail(descriptor, bytes, count, offset);
}
ssize_t pread64(int descriptor, void* bytes, std::size_t count, off64_t offset) {
  return trireme::test::read_or_fail(descriptor, bytes, count, offset);
}
int fsync(int descriptor) {
  if (trireme::test::fails(trireme::test::failing_flushes, trireme::test::path_of(descriptor))) return -1;
  return static_cast<int>(::syscall(SYS_fsync, descriptor));
}
int stat(const char* path, struct stat* status) noexcept {
  if (trireme::test::fails(trireme::test::failing_looks, path)) return -1;
  return ::fstatat(AT_FDCWD, path, status, 0);
}

}  // extern "C"
