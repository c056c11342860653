// SPDX-License-Identifier: Apache-2.0
#include "trireme/base/io/regular_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

namespace trireme::io {

namespace {

std::string kind_of(mode_t mode) {
  if (S_ISDIR(mode)) return "a directory";
  if (S_ISFIFO(mode)) return "a FIFO";
  if (S_ISSOCK(mode)) return "a socket";
  if (S_ISCHR(mode) || S_ISBLK(mode)) return "a device";
  return "something else";
}

RegularFile refused(int error) { return {.error = error, .kind = {}}; }

}  // namespace

std::string RegularFile::problem() const {
  if (!kind.empty()) return "it is " + kind + ", not a regular file";
  return std::generic_category().message(error);
}

RegularFile open_regular_file(const std::string& path) {
  // Looked at first: to open a device may do something (a tape rewinds), and a socket cannot be opened.
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) return refused(errno);
  if (!S_ISREG(status.st_mode)) return {.kind = kind_of(status.st_mode)};
  // It may be replaced in between: not to wait costs nothing, and the open file is checked again.
  Descriptor descriptor(::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
  // Another host holds a lease on it, or it is on tape: a blocking open waits for that.
  if (descriptor.get() < 0 && errno == EWOULDBLOCK)
    descriptor = Descriptor(::open(path.c_str(), O_RDONLY | O_NOCTTY | O_CLOEXEC));
  if (descriptor.get() < 0) return refused(errno);
  if (::fstat(descriptor.get(), &status) != 0) return refused(errno);
  if (!S_ISREG(status.st_mode)) return {.kind = kind_of(status.st_mode)};
  (void)::fcntl(descriptor.get(), F_SETFL, O_RDONLY);  // reads wait for the disk as usual
  return {.descriptor = std::move(descriptor), .bytes = status.st_size, .kind = {}};
}

}  // namespace trireme::io
