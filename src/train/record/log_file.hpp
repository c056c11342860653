// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>

namespace trireme::train {

/// A file to which records are appended; errors never end the run. Records that cannot be written (a full disk, a
/// quota) are kept in memory and written, in order and byte for byte, as soon as there is space, with a warning when
/// that begins and a line when it ends.
class LogFile {
 public:
  enum class Begin { empty, append };
  /// what: the records in messages, "lines". most_kept_bytes: beyond them new records are dropped. Throws WriteError
  /// when the file cannot be opened.
  LogFile(std::string path, Begin begin, std::string what, std::size_t most_kept_bytes = std::size_t{64} << 20);
  LogFile(const LogFile&) = delete;
  LogFile& operator=(const LogFile&) = delete;
  /// Tries again to write the remaining lines, and warns if it cannot.
  ~LogFile();

  /// Appends a record; unless writing fails, it has reached the file when the call returns. Never throws.
  void append(std::string record);
  /// Tries to write the kept records. Returns false if some remain.
  bool flush();
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  std::string path_;
  std::string what_;
  std::size_t most_kept_bytes_;
  int descriptor_ = -1;
  std::deque<std::string> kept_;
  std::size_t kept_bytes_ = 0;
  std::size_t written_ = 0;  ///< bytes of the first kept record that are in the file already
  bool behind_ = false;      ///< a warning was logged
  std::int64_t late_ = 0, dropped_ = 0;
};

/// Throws WriteError when `path` is a FIFO: to open it would wait for a reader.
void refuse_fifo(const std::string& path);

}  // namespace trireme::train
