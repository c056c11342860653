// SPDX-License-Identifier: Apache-2.0
#include "trireme/base/io/input_file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "base/io/try_again.hpp"
#include "trireme/base/error.hpp"
#include "trireme/base/io/entries.hpp"
#include "trireme/base/io/regular_file.hpp"
#include "trireme/base/text.hpp"

namespace trireme::io {
namespace {

namespace fs = std::filesystem;

std::string open_failure(const std::string& path, int error) {
  std::error_code unread;
  if (const fs::path target = fs::read_symlink(path, unread); error == ENOENT && !unread)
    return fmt::format("is a symbolic link to {}, which does not exist; was the file moved?", target.string());
  if (error == ENOENT || error == ENOTDIR) return "does not exist" + nearest_file_hint(path);
  if (error == EACCES)
    return "cannot be opened: permission denied; check the owner and mode of the file and its directories";
  if (error == EMFILE || error == ENFILE) {
    return "cannot be opened: too many open files; raise the limit (`ulimit -n`) or join token files into fewer";
  }
  if (error == ENAMETOOLONG) return fmt::format("cannot be opened: {}; {}", std::strerror(error), remedy_of_long_name);
  return fmt::format("cannot be opened: {}", std::strerror(error));
}

}  // namespace

std::string nearest_file_hint(const std::string& path) {
  const fs::path wanted(path);
  const fs::path directory = wanted.has_parent_path() ? wanted.parent_path() : fs::path(".");
  std::error_code error;
  if (!fs::is_directory(directory, error)) {
    return fmt::format("; there is no directory {} either (paths are relative to the working directory)",
                       directory.string());
  }
  std::string best;
  std::size_t best_distance = 0;
  const std::string name = wanted.filename().string();
  for (const fs::path& entry : entries_of(directory, error)) {
    if (fs::is_directory(entry, error)) continue;
    const std::string candidate = entry.filename().string();
    if (candidate.starts_with('.') && !name.starts_with('.')) continue;
    const std::size_t distance = edit_distance(name, candidate);
    if (best.empty() || distance < best_distance || (distance == best_distance && candidate < best)) {
      best = candidate;
      best_distance = distance;
    }
  }
  if (best.empty()) return fmt::format("; the directory {} holds no files", directory.string());
  return fmt::format("; the nearest file in {} is {}", directory.string(), best);
}

InputFile::InputFile(std::string path, std::string kind, Pipes pipes) : path_(std::move(path)), kind_(std::move(kind)) {
  RegularFile opened;
  (void)last_error([&] {
    opened = open_regular_file(path_);
    errno = opened.error;
    return opened.error == 0;
  });
  if (opened.kind == "a FIFO" && pipes == Pipes::taken) {
    // Waits for the writer of a pipe, as every filter does: `zcat text.gz |` or <(zcat text.gz).
    opened = {.descriptor = Descriptor(::open(path_.c_str(), O_RDONLY | O_CLOEXEC)), .kind = {}};
    if (!opened.opened()) opened.error = errno;
  }
  if (!opened.kind.empty())
    throw DataError(fmt::format("{} is {}, not a regular file; name the file itself", name(), opened.kind));
  if (!opened.opened()) throw DataError(name() + " " + open_failure(path_, opened.error));
  descriptor_ = std::move(opened.descriptor);
  size_ = opened.bytes;
}

void InputFile::read_at(std::int64_t offset, std::span<std::byte> out) const {
  while (!out.empty()) {
    ssize_t got = 0;
    const int error = last_error([&] {
      got = ::pread(descriptor_.get(), out.data(), out.size(), offset);
      return got >= 0;
    });
    if (error != 0)
      throw DataError(fmt::format("{}: reading at byte {} failed: {}; check the file system", name(), offset,
                                  std::strerror(error)));
    if (got == 0) {
      throw DataError(
          fmt::format("{} ends at byte {}, where {} more were expected: it is truncated or changed while being read; "
                      "restore it",
                      name(), offset, out.size()));
    }
    offset += got;
    out = out.subspan(static_cast<std::size_t>(got));
  }
}

std::string InputFile::read_whole(std::int64_t most) const {
  if (size_ > most)
    throw DataError(fmt::format("{} has {} bytes, at most {} are expected; check the path", name(), size_, most));
  std::string bytes(static_cast<std::size_t>(size_), '\0');
  read_at(0, std::as_writable_bytes(std::span(bytes)));
  return bytes;
}

std::size_t InputFile::read_next(std::span<char> out) {
  while (true) {
    const ssize_t got = ::read(descriptor_.get(), out.data(), out.size());
    if (got >= 0) return static_cast<std::size_t>(got);
    if (errno != EINTR) throw DataError(fmt::format("{}: reading failed: {}", name(), std::strerror(errno)));
  }
}

}  // namespace trireme::io
