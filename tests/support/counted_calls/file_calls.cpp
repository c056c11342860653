// SPDX-License-Identifier: Apache-2.0
//
// Counts accesses to the file system by path: opens, creations, looks (stat, access, a directory's list) and changes.
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cctype>
#include <climits>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "counts.hpp"

namespace {

/// `path` from the root, seen from the open directory `from`.
std::string absolute(int from, const char* path) {
  std::array<char, PATH_MAX> here{};
  if (path[0] == '/') return path;
  const std::string link = from == AT_FDCWD ? "/proc/self/cwd" : "/proc/self/fd/" + std::to_string(from);
  const ssize_t length = ::readlink(link.c_str(), here.data(), here.size());
  return std::string(here.data(), static_cast<std::size_t>(length < 0 ? 0 : length)) + "/" + path;
}

/// The path below COUNTED_ROOT with "#" for its numbers; empty elsewhere.
std::string pattern_of(int from, const char* path) {
  static const char* const root = std::getenv("COUNTED_ROOT");
  if (root == nullptr || path == nullptr) return {};
  const std::string full = absolute(from, path);
  const std::string below = std::string(root) + "/";
  if (!full.starts_with(below)) return {};
  std::string pattern;
  for (std::size_t i = below.size(); i < full.size(); ++i) {
    const bool digit = std::isdigit(static_cast<unsigned char>(full[i])) != 0;
    if (!digit) pattern += full[i];
    if (digit && (pattern.empty() || pattern.back() != '#')) pattern += '#';
  }
  return pattern;
}

/// In one write: lines of several ranks do not mix.
void log(const std::string& line) {
  static const char* const path = std::getenv("COUNTS_LOG");
  if (path == nullptr) return;
  const auto file = static_cast<int>(::syscall(SYS_openat, AT_FDCWD, path, O_WRONLY | O_CREAT | O_APPEND, 0666));
  if (file < 0 || ::write(file, line.data(), line.size()) < 0) std::abort();
  ::close(file);
}

void count(const char* call, const char* path, int from = AT_FDCWD) {
  if (const std::string pattern = pattern_of(from, path); !pattern.empty()) {
    counted::add(std::string(call) + " " + pattern);
    log(std::string(call) + " " + pattern + "\n");
  }
}

template <class Function>
Function* original(const char* name) {
  return reinterpret_cast<Function*>(::dlsym(RTLD_NEXT, name));
}

bool creates(int flags) { return (flags & (O_CREAT | __O_TMPFILE)) != 0; }
const char* opening(int flags) { return creates(flags) ? "create" : "open"; }
const char* opening(const char* mode) { return mode[0] == 'r' ? "open" : "create"; }

}  // namespace

#define NEXT(name, type) static auto* const next = original<type>(name)

extern "C" {

#define OPEN(name)                                                 \
  int name(const char* path, int flags, ...) {                     \
    std::va_list list;                                             \
    va_start(list, flags);                                         \
    const mode_t mode = creates(flags) ? va_arg(list, mode_t) : 0; \
    va_end(list);                                                  \
    NEXT(#name, int(const char*, int, ...));                       \
    count(opening(flags), path);                                   \
    return next(path, flags, mode);                                \
  }
OPEN(open)
OPEN(open64)

// remove_all descends by these.
int openat(int from, const char* path, int flags, ...) {
  std::va_list list;
  va_start(list, flags);
  const mode_t mode = creates(flags) ? va_arg(list, mode_t) : 0;
  va_end(list);
  NEXT("openat", int(int, const char*, int, ...));
  count((flags & O_DIRECTORY) != 0 ? "list" : opening(flags), path, from);
  return next(from, path, flags, mode);
}
int unlinkat(int from, const char* path, int flags) noexcept {
  NEXT("unlinkat", int(int, const char*, int));
  count("change", path, from);
  return next(from, path, flags);
}

std::FILE* fopen(const char* path, const char* mode) {
  NEXT("fopen", std::FILE * (const char*, const char*));
  count(opening(mode), path);
  return next(path, mode);
}
std::FILE* fopen64(const char* path, const char* mode) {
  NEXT("fopen64", std::FILE * (const char*, const char*));
  count(opening(mode), path);
  return next(path, mode);
}
DIR* opendir(const char* path) {
  NEXT("opendir", DIR * (const char*));
  count("list", path);
  return next(path);
}

#define ON_PATH(call, name, type, declared, ...) \
  int name declared {                            \
    NEXT(#name, type);                           \
    count(call, path);                           \
    return next(__VA_ARGS__);                    \
  }
ON_PATH("look", stat, int(const char*, struct stat*), (const char* path, struct stat* status), path, status)
ON_PATH("look", stat64, int(const char*, struct stat64*), (const char* path, struct stat64* status), path, status)
ON_PATH("look", lstat, int(const char*, struct stat*), (const char* path, struct stat* status), path, status)
ON_PATH("look", lstat64, int(const char*, struct stat64*), (const char* path, struct stat64* status), path, status)
ON_PATH("look", access, int(const char*, int), (const char* path, int mode), path, mode)
// stat of programs built before glibc 2.33: the first definition of std::filesystem found is libtorch's.
int __xstat(int, const char* path, struct stat* status) { return stat(path, status); }
int __xstat64(int, const char* path, struct stat64* status) { return stat64(path, status); }
int __lxstat(int, const char* path, struct stat* status) { return lstat(path, status); }
int __lxstat64(int, const char* path, struct stat64* status) { return lstat64(path, status); }
ON_PATH("change", mkdir, int(const char*, mode_t), (const char* path, mode_t mode), path, mode)
ON_PATH("change", rename, int(const char*, const char*), (const char* path, const char* to), path, to)
ON_PATH("change", unlink, int(const char*), (const char* path), path)
ON_PATH("change", rmdir, int(const char*), (const char* path), path)

}  // extern "C"
