// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "trireme/base/error.hpp"
#include "trireme/base/io/descriptor.hpp"

namespace trireme::io {

/// The system failed to read (EIO, EMFILE, ENOMEM, EACCES, ...), also after
/// retries: the bytes may be intact, so their file must be neither deleted
/// nor skipped. Not a CheckpointError, which means damage. Exit code 4.
struct ReadError : Error {
  explicit ReadError(const std::string& message) : Error(ExitCode::checkpoint, message) {}
};

/// Throws ReadError with the text of `error`, an errno; CheckpointError if it means that the file does not exist. what:
/// "open", "read at byte 3".
[[noreturn]] void cannot_read(const std::string& path, std::string_view what, int error);

/// An open file. Owns its descriptor; every error contains the path and the system's reason. Reads that fail for a
/// transient reason are retried for a second.
class File {
 public:
  /// Opens a regular file for reading; does not wait if it is a FIFO. Throws CheckpointError when it is missing
  /// or no file, ReadError.
  [[nodiscard]] static File open(const std::string& path);
  /// Creates a file for writing. An existing file, link or FIFO of that name is removed first, never followed or waited
  /// for. Throws WriteError, also if it is a directory or a device.
  [[nodiscard]] static File create(const std::string& path);
  /// Opens a device or a pipe for writing. Throws WriteError if a FIFO has no reader after two seconds.
  [[nodiscard]] static File open_output(const std::string& path);
  /// Opens a file that is there, to write into it. Throws WriteError.
  [[nodiscard]] static File update(const std::string& path);

  [[nodiscard]] const std::string& path() const { return path_; }
  /// Size in bytes when it was opened.
  [[nodiscard]] std::int64_t size() const { return size_; }

  /// Bytes of the file that take space: less than its size if it has holes.
  [[nodiscard]] std::int64_t stored_bytes() const;

  /// Fills `bytes` from `offset`; any number of threads may read at once. Throws CheckpointError when the file ends
  /// early, ReadError.
  void read_at(std::int64_t offset, std::span<std::byte> bytes) const;
  /// Appends all of `bytes`. Throws WriteError.
  void write(std::span<const std::byte> bytes);
  /// Writes all of `bytes` at `offset` of a file opened by `update`, and lets the disk begin with them. Throws
  /// WriteError.
  void write_at(std::int64_t offset, std::span<const std::byte> bytes);
  /// Sets the file's size to `bytes`; an extension is a hole. Throws WriteError.
  void resize(std::int64_t bytes);
  /// Sets space aside for the first `bytes` bytes, so that a full disk shows before anything is written; file systems
  /// that cannot are left alone. Throws WriteError.
  void reserve(std::int64_t bytes);
  /// Drops the page cache of a flushed file, if the
  /// system allows it: the next reads come from the disk.
  void forget_pages() const;
  /// Flushes the file to disk and closes it. Throws WriteError.
  void sync_and_close();

 private:
  File(std::string path, Descriptor descriptor) : path_(std::move(path)), descriptor_(std::move(descriptor)) {}

  std::string path_;
  Descriptor descriptor_;
  std::int64_t size_ = 0;
};

/// Kind of file at a path.
enum class PathKind { nothing, file, directory, other };
struct PathStatus {
  PathKind kind = PathKind::nothing;
  std::int64_t bytes = 0;  ///< of a file
};
/// Throws ReadError when the system reports none.
[[nodiscard]] PathStatus status_of(const std::string& path);

/// The whole of a file as text. Throws CheckpointError, also when it has more than `most` bytes or consists of holes;
/// ReadError.
[[nodiscard]] std::string read_text(const std::string& path, std::int64_t most);

/// Writes `text` as a whole file made by `File::create`, flushed to disk. Throws WriteError.
void write_text(const std::string& path, const std::string& text);

/// Replaces the file `name` by one with `text`, atomically: written under a temporary name in its directory, flushed to
/// disk, renamed. Links are followed; a device or a pipe is written to. Throws WriteError and leaves the file
/// unchanged.
void replace_text(const std::string& name, const std::string& text);

/// Flushes a directory's entries (creations, renames) to disk. Throws WriteError.
void sync_directory(const std::string& path);

}  // namespace trireme::io
