// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "trireme/base/io/descriptor.hpp"

namespace trireme::io {

/// Whether a pipe is accepted as a file, to be read by `read_next` only.
enum class Pipes { refused, taken };

/// A regular file (or a pipe) open for reading. Safe to read from several threads by `read_at`.
class InputFile {
 public:
  /// `kind` names the file in messages: "token file". Throws DataError when there is no such file (naming the nearest
  /// existing one), when it cannot be opened, or when it is a directory, a device, a socket or, without waiting for its
  /// writer, a FIFO.
  InputFile(std::string path, std::string kind, Pipes pipes = Pipes::refused);

  [[nodiscard]] const std::string& path() const noexcept { return path_; }
  /// "token file data/x.bin": how messages begin.
  [[nodiscard]] std::string name() const { return kind_ + " " + path_; }
  /// Bytes when it was opened.
  [[nodiscard]] std::int64_t size() const noexcept { return size_; }

  /// Fills `out` from byte `offset` on. Throws DataError on a read error or when the file ends before `out` is full.
  void read_at(std::int64_t offset, std::span<std::byte> out) const;
  /// Reads the whole file. Throws DataError if it has more than `most` bytes, before anything is allocated.
  [[nodiscard]] std::string read_whole(std::int64_t most) const;
  /// Reads on from where the last `read_next` stopped; returns the bytes read, 0 at the end. Throws DataError.
  [[nodiscard]] std::size_t read_next(std::span<char> out);

 private:
  std::string path_;
  std::string kind_;
  Descriptor descriptor_;
  std::int64_t size_ = 0;
};

/// "; the nearest file there is tokens.bin", or why there is none: the end of a message about a missing file.
[[nodiscard]] std::string nearest_file_hint(const std::string& path);

}  // namespace trireme::io
