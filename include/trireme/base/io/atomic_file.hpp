// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "trireme/base/io/descriptor.hpp"

namespace trireme::io {

/// A file that appears under its name only when it is complete: written as PATH.partial, flushed to disk, renamed.
/// Links at PATH are followed; a link, FIFO or socket at PATH.partial is removed, not followed. Destroyed before
/// `publish`, it removes PATH.partial and leaves an older PATH untouched.
class AtomicFile {
 public:
  /// Throws WriteError when PATH.partial cannot be created, another process is writing it, or PATH is not a regular
  /// file.
  explicit AtomicFile(std::string path);
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;
  ~AtomicFile();

  [[nodiscard]] const std::string& path() const noexcept { return path_; }
  /// Appends; buffered. Throws WriteError.
  void write(std::span<const char> bytes);
  /// Flushes everything to disk and closes; PATH.partial is complete then. Throws WriteError.
  void close();
  /// Renames the closed file to PATH, durably. Throws WriteError.
  void publish();

 private:
  void flush();
  [[noreturn]] void fail(int error) const;

  std::string path_;    ///< as it was named
  std::string target_;  ///< without links
  std::string partial_;
  Descriptor descriptor_;
  Descriptor lock_;  ///< the same file: no other process takes it before it is renamed
  std::vector<char> buffer_;
  bool published_ = false;
};

}  // namespace trireme::io
