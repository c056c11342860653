// SPDX-License-Identifier: Apache-2.0
//
// Preloaded into a program (LD_PRELOAD), it logs the system calls that change files, and lets chosen ones fail.
//
//   SYSTEM_CALLS_LOG=FILE      appends a line per successful call: RANK PID CALL PATH [PATH]; all ranks write to one
//   SYSTEM_CALLS_SITES=FILE    appends a line per call that a rule could name, whether or not it succeeds: CALL PATH
//   SYSTEM_CALLS_RULES=FILE    read at every call, so that a test can change it during a run; a line per rule:
//                              CALL RANK NTH WHAT PART
//
// A rule applies to the NTH matching call of a process and all later ones, or to calls NTH to LAST if it is written
// NTH-LAST (counted since FILE changed), by RANK (or any), on a path that contains PART, or ends with the text before a
// last $. WHAT: the name of an errno, sleep=SECONDS (then the call is made), or done (success is returned, the call is
// not made). CALL: create (an open with O_CREAT), open, read, write, truncate, allocate, fsync, flock, mkdir, rename,
// unlink, list (opendir, readdir), kill (its "path" is the process id), thread (pthread_create; its "path" is
// "thread").
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "support/system_calls/rules.hpp"

using trireme::test::calls::Answer;
using trireme::test::calls::is_launcher;
using trireme::test::calls::judge;
using trireme::test::calls::note;

namespace {

std::string path_of(int descriptor) {
  if (is_launcher()) return "";
  const int kept = errno;
  const std::string link = "/proc/self/fd/" + std::to_string(descriptor);
  std::array<char, PATH_MAX> text{};
  const ssize_t got = ::readlink(link.c_str(), text.data(), text.size());
  errno = kept;
  return {text.data(), static_cast<std::size_t>(got < 0 ? 0 : got)};
}

/// `path` from the root, seen from the directory `from`; nothing in it is resolved.
std::string absolute(int from, const char* path) {
  if (is_launcher()) return "";
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
ssize_t read(int file, void* bytes, size_t count) {
  INTERPOSE("read", ssize_t(int, void*, size_t));
  return judge("read", path_of(file)) == Answer::fail ? -1 : next(file, bytes, count);
}
DIR* opendir(const char* path) {
  INTERPOSE("opendir", DIR * (const char*));
  return judge("list", absolute(AT_FDCWD, path)) == Answer::fail ? nullptr : next(path);
}
DIR* fdopendir(int file) {
  INTERPOSE("fdopendir", DIR * (int));
  return judge("list", path_of(file)) == Answer::fail ? nullptr : next(file);
}
dirent* readdir(DIR* directory) {
  INTERPOSE("readdir", dirent * (DIR*));
  return judge("list", path_of(::dirfd(directory))) == Answer::fail ? nullptr : next(directory);
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
