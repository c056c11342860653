// SPDX-License-Identifier: Apache-2.0
#include "trireme/base/io/open_alone.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

namespace trireme::io {
namespace {

/// Whether `path` still leads to what is open: the process that had it may have renamed it in the meantime.
bool is_at(const std::string& path, int descriptor) {
  struct stat open {
  }, there{};
  return ::fstat(descriptor, &open) == 0 && ::stat(path.c_str(), &there) == 0 && open.st_dev == there.st_dev &&
         open.st_ino == there.st_ino;
}

}  // namespace

int open_alone(const std::string& path, int flags) {
  for (;;) {
    const int descriptor = ::open(path.c_str(), flags | O_CLOEXEC, 0666);
    if (descriptor < 0) return -1;
    if (::flock(descriptor, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
      ::close(descriptor);
      errno = EWOULDBLOCK;
      return -1;
    }
    if (is_at(path, descriptor)) return descriptor;
    ::close(descriptor);
  }
}

}  // namespace trireme::io
