// SPDX-License-Identifier: Apache-2.0
#include "trireme/base/io/atomic_file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include "trireme/base/error.hpp"
#include "trireme/base/io/flush.hpp"
#include "trireme/base/io/open_alone.hpp"
#include "trireme/base/io/output.hpp"
#include "trireme/base/io/regular_file.hpp"
#include "trireme/base/io/truncate.hpp"

namespace trireme::io {
namespace {

constexpr std::size_t buffer_bytes = 1 << 20;

std::string remedy(int error) {
  switch (error) {
    case ENOENT:
    case ENOTDIR: return "create its directory first";
    case EACCES:
    case EPERM:
    case EROFS: return "choose a directory you may write to";
    case ENOSPC:
    case EDQUOT: return "free space, or choose another file system";
    case EFBIG: return "raise the limit (`ulimit -f`), or choose another file system";
    case EWOULDBLOCK: return "another process is writing it; wait for its end, or name another file";
    case EISDIR: return "name a file in it";
    case ENAMETOOLONG: return std::string(remedy_of_long_name);
    default: return "choose another file system";
  }
}

}  // namespace

AtomicFile::AtomicFile(std::string path) : path_(std::move(path)) {
  Destination destination = destination_of(path_);
  if (!destination.replaced)
    throw WriteError(fmt::format("cannot write {}: it is not a regular file; name another one", path_));
  target_ = std::move(destination.path);
  partial_ = target_ + ".partial";
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(std::filesystem::symlink_status(partial_, ignored))) remove_leftover(partial_);
  descriptor_ = Descriptor(open_alone(partial_, O_WRONLY | O_CREAT | O_NOFOLLOW | O_NONBLOCK));
  if (descriptor_.get() < 0) fail(errno);
  lock_ = Descriptor(::fcntl(descriptor_.get(), F_DUPFD_CLOEXEC, 0));
  if (truncate(descriptor_.get(), 0) != 0) {  // of a process that was killed
    const int error = errno;
    ::unlink(partial_.c_str());
    fail(error);
  }
  buffer_.reserve(buffer_bytes);
}

AtomicFile::~AtomicFile() {
  if (!published_) ::unlink(partial_.c_str());
}

void AtomicFile::fail(int error) const {
  throw WriteError(fmt::format("cannot write {}: {}; {}", path_, std::strerror(error), remedy(error)));
}

void AtomicFile::write(std::span<const char> bytes) {
  while (!bytes.empty()) {
    const auto part = bytes.first(std::min(bytes.size(), buffer_bytes - buffer_.size()));
    buffer_.insert(buffer_.end(), part.begin(), part.end());
    bytes = bytes.subspan(part.size());
    if (buffer_.size() == buffer_bytes) flush();
  }
}

void AtomicFile::flush() {
  std::span<const char> left(buffer_);
  while (!left.empty()) {
    const ssize_t wrote = ::write(descriptor_.get(), left.data(), left.size());
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote < 0) fail(errno);
    left = left.subspan(static_cast<std::size_t>(wrote));
  }
  buffer_.clear();
}

void AtomicFile::close() {
  flush();
  // Some file systems (a quota on NFS) report lost bytes only here.
  if (flush_to_disk(descriptor_.get()) != 0 && errno != EINVAL) fail(errno);
  if (const int error = descriptor_.close(); error != 0 && error != EINTR) fail(error);
}

void AtomicFile::publish() {
  invariant(descriptor_.get() < 0, "a file is closed before it is published");
  rename_over(partial_, target_);
  published_ = true;
  const auto directory = std::filesystem::path(target_).parent_path();
  const Descriptor parent(::open(directory.empty() ? "." : directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (parent.get() >= 0) ::fsync(parent.get());  // where directories cannot be flushed the rename is durable soon
}

}  // namespace trireme::io
