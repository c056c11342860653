// SPDX-License-Identifier: Apache-2.0
#include "trireme/base/io/file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <system_error>
#include <thread>
#include <utility>

#include "base/io/try_again.hpp"
#include "trireme/base/error.hpp"
#include "trireme/base/io/flush.hpp"
#include "trireme/base/io/handled_files.hpp"
#include "trireme/base/io/output.hpp"
#include "trireme/base/io/regular_file.hpp"
#include "trireme/base/io/truncate.hpp"

namespace trireme::io {

namespace {

constexpr std::int64_t most_unlooked_at = 64LL << 20;        // smaller files may be all holes
constexpr std::size_t most_per_call = std::size_t{1} << 30;  // Linux moves at most 2 GiB - 4 KiB a call

std::string reason(int error) { return std::generic_category().message(error); }

std::string name_of(int error) {
  switch (error) {
    case EIO: return "EIO";
    case EMFILE: return "EMFILE";
    case ENFILE: return "ENFILE";
    case ENOMEM: return "ENOMEM";
    case EACCES: return "EACCES";
    case EPERM: return "EPERM";
    case ESTALE: return "ESTALE";
    case ETIMEDOUT: return "ETIMEDOUT";
    case ENODEV: return "ENODEV";
    case EAGAIN: return "EAGAIN";
    default: return fmt::format("errno {}", error);
  }
}

std::string_view remedy_of_read(int error) {
  switch (error) {
    case EMFILE:
    case ENFILE: return "allow more open files (ulimit -n) and start again";
    case ENOMEM: return "give the job more memory and start again";
    case EACCES:
    case EPERM: return "check the permissions and start again";
    default: return "check the file system and start again";
  }
}

[[noreturn]] void cannot_write(const std::string& path, std::string_view what, int error) {
  const bool full = error == ENOSPC || error == EDQUOT;
  throw WriteError(fmt::format("{}: cannot {}: {}; {}", path, what, reason(error),
                               error == EFBIG          ? "raise the limit (`ulimit -f`) or write to another file system"
                               : error == ENAMETOOLONG ? remedy_of_long_name
                               : full                  ? "free space or write elsewhere"
                                                       : "check the directory and its permissions"));
}

Descriptor opened_by(const std::string& path, int flags) {
  int descriptor = 0;
  do descriptor = ::open(path.c_str(), flags | O_CLOEXEC, 0666);  // network file systems let signals interrupt it
  while (descriptor < 0 && errno == EINTR);
  return Descriptor(descriptor);
}

}  // namespace

void cannot_read(const std::string& path, std::string_view what, int error) {
  if (error == ENOENT || error == ENOTDIR)
    throw CheckpointError(fmt::format("{}: cannot {}: {}; check the path", path, what, reason(error)));
  if (error == ENAMETOOLONG)
    throw ReadError(fmt::format("{}: cannot {}: {}; {}", path, what, reason(error), remedy_of_long_name));
  throw ReadError(fmt::format("{}: cannot {}: {} ({}). Its contents may be intact, and nothing was changed; {}", path,
                              what, name_of(error), reason(error), remedy_of_read(error)));
}

File File::open(const std::string& path) {
  RegularFile opened;
  const int error = last_error([&] {
    opened = open_regular_file(path);
    errno = opened.error;
    return opened.error == 0;
  });
  if (error != 0) cannot_read(path, "open", error);
  if (!opened.opened())
    throw CheckpointError(fmt::format("{}: cannot open: {}; check the path", path, opened.problem()));
  File file(path, std::move(opened.descriptor));
  file.size_ = opened.bytes;
  count_handled_file();
  return file;
}

File File::create(const std::string& path) {
  const auto made = [&] { return opened_by(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW); };
  File file(path, made());
  if (file.descriptor_.get() < 0 && errno == EEXIST) {
    remove_leftover(path);
    file.descriptor_ = made();
  }
  if (file.descriptor_.get() < 0) cannot_write(path, "create", errno);
  count_handled_file();
  return file;
}

File File::open_output(const std::string& path) {
  constexpr int most_tries = 40;
  constexpr std::chrono::milliseconds pause{50};  // a reader may start at the same time
  File file(path, Descriptor{});
  for (int i = 0; i < most_tries; ++i) {
    file.descriptor_ = opened_by(path, O_WRONLY | O_NONBLOCK | O_NOCTTY);
    if (file.descriptor_.get() >= 0 || errno != ENXIO) break;
    std::this_thread::sleep_for(pause);
    errno = ENXIO;
  }
  if (file.descriptor_.get() < 0 && errno == ENXIO)
    throw WriteError(fmt::format("{}: cannot open: nothing reads from it; start its reader first", path));
  if (file.descriptor_.get() < 0) cannot_write(path, "open", errno);
  (void)::fcntl(file.descriptor_.get(), F_SETFL, O_WRONLY);  // writes wait for the reader as usual
  return file;
}

File File::update(const std::string& path) {
  File file(path, opened_by(path, O_RDWR));
  struct stat status {};
  if (file.descriptor_.get() < 0 || ::fstat(file.descriptor_.get(), &status) != 0) cannot_write(path, "open", errno);
  file.size_ = status.st_size;
  return file;
}

std::int64_t File::stored_bytes() const {
  std::int64_t stored = 0;
  for (off_t at = 0; at < size_;) {
    const off_t begin = ::lseek(descriptor_.get(), at, SEEK_DATA);
    if (begin < 0) return errno == ENXIO ? stored : size_;  // only a hole is left; or holes are not supported here
    const off_t end = ::lseek(descriptor_.get(), begin, SEEK_HOLE);
    if (end <= begin) return size_;
    stored += end - begin;
    at = end;
  }
  return stored;
}

void File::read_at(std::int64_t offset, std::span<std::byte> bytes) const {
  while (!bytes.empty()) {
    ssize_t got = 0;
    const int error = last_error([&] {
      got = ::pread(descriptor_.get(), bytes.data(), std::min(bytes.size(), most_per_call), offset);
      return got >= 0;
    });
    if (error != 0) cannot_read(path_, fmt::format("read at byte {}", offset), error);
    if (got == 0) {
      throw CheckpointError(
          fmt::format("{}: ends at byte {}, it had {} bytes when it was opened; something changes the file, "
                      "use a copy of it",
                      path_, offset, size_));
    }
    offset += got;
    bytes = bytes.subspan(static_cast<std::size_t>(got));
  }
}

void File::write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t put = ::write(descriptor_.get(), bytes.data(), std::min(bytes.size(), most_per_call));
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) cannot_write(path_, "write", errno);
    bytes = bytes.subspan(static_cast<std::size_t>(put));
  }
}

void File::write_at(std::int64_t offset, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t put = ::pwrite(descriptor_.get(), bytes.data(), std::min(bytes.size(), most_per_call), offset);
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) cannot_write(path_, "write", errno);
    // The disk begins now, not when the kernel has gathered enough, or at the end.
    (void)::sync_file_range(descriptor_.get(), offset, put, SYNC_FILE_RANGE_WRITE);
    offset += put;
    bytes = bytes.subspan(static_cast<std::size_t>(put));
  }
}

void File::resize(std::int64_t bytes) {
  if (truncate(descriptor_.get(), bytes) != 0) cannot_write(path_, fmt::format("extend to {} bytes", bytes), errno);
  size_ = bytes;
}

void File::reserve(std::int64_t bytes) {
  int failed = 0;
  do failed = ::fallocate(descriptor_.get(), 0, 0, bytes);
  while (failed != 0 && errno == EINTR);
  if (failed != 0 && (errno == ENOSPC || errno == EDQUOT || errno == EFBIG))
    cannot_write(path_, fmt::format("set {} bytes aside", bytes), errno);
}

void File::forget_pages() const { (void)::posix_fadvise(descriptor_.get(), 0, 0, POSIX_FADV_DONTNEED); }

void File::sync_and_close() {
  // EINVAL: a pipe or a device, which cannot be flushed.
  if (flush_to_disk(descriptor_.get()) != 0 && errno != EINVAL) cannot_write(path_, "flush to disk", errno);
  // After EINTR it is closed all the same, and everything is on the disk.
  if (const int error = descriptor_.close(); error != 0 && error != EINTR) cannot_write(path_, "close", error);
}

PathStatus status_of(const std::string& path) {
  struct stat status {};
  const int error = last_error([&] { return ::stat(path.c_str(), &status) == 0; });
  if (error == ENOENT || error == ENOTDIR) return {};
  if (error != 0) cannot_read(path, "look at it", error);
  if (S_ISDIR(status.st_mode)) return {.kind = PathKind::directory};
  return {.kind = S_ISREG(status.st_mode) ? PathKind::file : PathKind::other, .bytes = status.st_size};
}

std::string read_text(const std::string& path, std::int64_t most) {
  const File file = File::open(path);
  if (file.size() > most) {
    throw CheckpointError(
        fmt::format("{}: has {} bytes, at most {} are expected; check the path", path, file.size(), most));
  }
  if (file.size() > most_unlooked_at && file.stored_bytes() < file.size() / 2)
    throw CheckpointError(fmt::format("{}: is damaged: of its {} bytes most are holes", path, file.size()));
  std::string text(static_cast<std::size_t>(file.size()), '\0');
  file.read_at(0, std::as_writable_bytes(std::span(text)));
  return text;
}

void write_text(const std::string& path, const std::string& text) {
  File file = File::create(path);
  file.write(std::as_bytes(std::span(text)));
  file.sync_and_close();
}

void replace_text(const std::string& name, const std::string& text) {
  static std::atomic<unsigned> count = 0;
  const auto [path, replaced] = destination_of(name);
  if (!replaced) {
    File file = File::open_output(path);
    file.write(std::as_bytes(std::span(text)));
    file.sync_and_close();
    return;
  }
  const std::size_t base = path.find_last_of('/') + 1;  // 0 if there is none
  std::array<char, 256> host{};
  if (::gethostname(host.data(), host.size() - 1) != 0) host[0] = '?';
  const std::string partial =
      fmt::format("{}.{}.{}-{}-{}.partial", path.substr(0, base), path.substr(base), host.data(), ::getpid(), count++);
  try {
    write_text(partial, text);
    std::error_code error;
    rename_file(partial, path, error);
    if (error) cannot_write(path, "put the new file in its place", error.value());
    sync_directory(base == 0 ? "." : path.substr(0, base));
  } catch (...) {
    ::unlink(partial.c_str());
    throw;
  }
}

void sync_directory(const std::string& path) {
  const Descriptor directory = opened_by(path, O_RDONLY | O_DIRECTORY);
  if (directory.get() < 0) cannot_write(path, "open the directory", errno);
  // Some network file systems cannot flush a directory and return EINVAL, which is ignored.
  const int error = flush_to_disk(directory.get()) == 0 || errno == EINVAL ? 0 : errno;
  if (error != 0) cannot_write(path, "flush the directory to disk", error);
}

}  // namespace trireme::io
