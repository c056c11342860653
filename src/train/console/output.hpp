// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>

namespace trireme::train {

/// Standard output of a long run, which continues whether or not it is read. A closed one is ignored; a blocked reader
/// (a stopped terminal, a full pipe) is waited for once and then skipped. Requires SIGPIPE to be ignored.
class Output {
 public:
  /// descriptor: must outlive this. patience_seconds: limit of the wait for a blocked reader.
  explicit Output(int descriptor, double patience_seconds = 5) : descriptor_(descriptor), patience_(patience_seconds) {}

  /// Writes `text`, or drops it if it cannot be written, with a warning each time this begins. Never throws.
  void write(std::string_view text);
  /// Shows `line` in place of the one shown before, on a terminal; the next `write` begins a line below it.
  void rewrite(std::string_view line);
  /// Ends a line that `rewrite` left open.
  void finish_line();

 private:
  void put(std::string_view text);
  [[nodiscard]] bool ready();
  void write_all(std::string_view text);

  int descriptor_;
  double patience_;
  bool closed_ = false;
  bool open_ = false;    ///< the last line was shown by `rewrite`
  bool behind_ = false;  ///< the reader is assumed to be blocked
  std::int64_t dropped_ = 0;
};

}  // namespace trireme::train
