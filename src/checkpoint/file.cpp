// SPDX-License-Identifier: Apache-2.0
#include "trireme/checkpoint/file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>
#include <utility>

#include "trireme/base/error.hpp"

namespace trireme::checkpoint {

namespace {

constexpr std::size_t most_per_call = std::size_t{1} << 30;  // Linux moves at most 2 GiB - 4 KiB a call

std::string reason(int error) { return std::generic_category().message(error); }

[[noreturn]] void cannot_write(const std::string& path, std::string_view what, int error) {
  const bool full = error == ENOSPC || error == EDQUOT;
  throw WriteError(fmt::format("{}: cannot {}: {}; {}", path, what, reason(error),
                               full ? "free space or write elsewhere" : "check the directory and its permissions"));
}

}  // namespace

File File::open(const std::string& path) {
  File file(path, ::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat status {};
  if (file.descriptor_ < 0 || ::fstat(file.descriptor_, &status) != 0) {
    throw CheckpointError(fmt::format("{}: cannot open: {}; check the path", path, reason(errno)));
  }
  if (!S_ISREG(status.st_mode)) throw CheckpointError(fmt::format("{}: is not a file; check the path", path));
  file.size_ = status.st_size;
  return file;
}

File File::create(const std::string& path) {
  File file(path, ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
  if (file.descriptor_ < 0) cannot_write(path, "create", errno);
  return file;
}

File File::update(const std::string& path) {
  File file(path, ::open(path.c_str(), O_RDWR | O_CLOEXEC));
  struct stat status {};
  if (file.descriptor_ < 0 || ::fstat(file.descriptor_, &status) != 0) cannot_write(path, "open", errno);
  file.size_ = status.st_size;
  return file;
}

File::File(File&& other) noexcept
    : path_(std::move(other.path_)), descriptor_(std::exchange(other.descriptor_, -1)), size_(other.size_) {}

File& File::operator=(File&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(descriptor_, other.descriptor_);
  std::swap(size_, other.size_);
  return *this;
}

File::~File() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

void File::read_at(std::int64_t offset, std::span<std::byte> bytes) const {
  while (!bytes.empty()) {
    const ssize_t got = ::pread(descriptor_, bytes.data(), std::min(bytes.size(), most_per_call), offset);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) {
      throw CheckpointError(
          fmt::format("{}: cannot read at byte {}: {}; check the file system", path_, offset, reason(errno)));
    }
    if (got == 0) {
      throw CheckpointError(
          fmt::format("{}: ends at byte {}, it had {} bytes when it was opened; something changes the file, "
                      "give it a copy of its own",
                      path_, offset, size_));
    }
    offset += got;
    bytes = bytes.subspan(static_cast<std::size_t>(got));
  }
}

void File::write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t put = ::write(descriptor_, bytes.data(), std::min(bytes.size(), most_per_call));
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) cannot_write(path_, "write", errno);
    bytes = bytes.subspan(static_cast<std::size_t>(put));
  }
}

void File::write_at(std::int64_t offset, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t put = ::pwrite(descriptor_, bytes.data(), std::min(bytes.size(), most_per_call), offset);
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) cannot_write(path_, "write", errno);
    // The disk begins now, not when the kernel has gathered enough, or at the end.
    (void)::sync_file_range(descriptor_, offset, put, SYNC_FILE_RANGE_WRITE);
    offset += put;
    bytes = bytes.subspan(static_cast<std::size_t>(put));
  }
}

void File::reserve(std::int64_t bytes) {
  int failed = 0;
  do failed = ::fallocate(descriptor_, 0, 0, bytes);
  while (failed != 0 && errno == EINTR);
  if (failed != 0 && (errno == ENOSPC || errno == EDQUOT || errno == EFBIG))
    cannot_write(path_, fmt::format("set {} bytes aside", bytes), errno);
}

void File::forget_pages() const { (void)::posix_fadvise(descriptor_, 0, 0, POSIX_FADV_DONTNEED); }

void File::sync_and_close() {
  if (::fsync(descriptor_) != 0) cannot_write(path_, "flush to disk", errno);
  if (::close(std::exchange(descriptor_, -1)) != 0) cannot_write(path_, "close", errno);
}

std::string read_text(const std::string& path, std::int64_t most) {
  const File file = File::open(path);
  if (file.size() > most) {
    throw CheckpointError(
        fmt::format("{}: has {} bytes, at most {} are expected; check the path", path, file.size(), most));
  }
  std::string text(static_cast<std::size_t>(file.size()), '\0');
  file.read_at(0, std::as_writable_bytes(std::span(text)));
  return text;
}

void write_text(const std::string& path, const std::string& text) {
  File file = File::create(path);
  file.write(std::as_bytes(std::span(text)));
  file.sync_and_close();
}

void sync_directory(const std::string& path) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) cannot_write(path, "open the directory", errno);
  // Some network file systems cannot flush a directory and say so with EINVAL: there is nothing to do about it.
  const int error = ::fsync(descriptor) == 0 || errno == EINVAL ? 0 : errno;
  ::close(descriptor);
  if (error != 0) cannot_write(path, "flush the directory to disk", error);
}

}  // namespace trireme::checkpoint
