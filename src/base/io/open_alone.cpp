// SPDX-License-Identifier: Apache-2.0
#include "trireme/base/io/open_alone.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

namespace trireme::io {
namespace {

enum class Place { here, elsewhere, unknown };

/// Whether `path` still refers to the open file: its previous holder may have renamed it in the meantime. unknown:
/// errno has the reason.
Place place_of(const std::string& path, int descriptor) {
  struct stat open {
  }, there{};
  if (::fstat(descriptor, &open) != 0) return Place::unknown;
  if (::stat(path.c_str(), &there) != 0) return errno == ENOENT ? Place::elsewhere : Place::unknown;
  return open.st_dev == there.st_dev && open.st_ino == there.st_ino ? Place::here : Place::elsewhere;
}

}  // namespace

int open_alone(const std::string& path, int flags) {
  for (;;) {
    const int descriptor = ::open(path.c_str(), flags | O_CLOEXEC, 0666);
    if (descriptor < 0 && errno == EINTR) continue;
    if (descriptor < 0) return -1;
    int error = ::flock(descriptor, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK ? EWOULDBLOCK : 0;
    if (error == 0) {
      const Place place = place_of(path, descriptor);
      if (place == Place::here) return descriptor;
      if (place == Place::unknown) error = errno;
    }
    ::close(descriptor);
    if (error == 0) continue;
    errno = error;
    return -1;
  }
}

}  // namespace trireme::io
