// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>

namespace trireme::train {

/// Standard output of a long run, which continues whether or not it is read. A closed one is ignored; a reader
/// that stands still (a stopped terminal, a full pipe) is waited for once and then left behind. Needs SIGPIPE ignored.
class Output {
 public:
  /// descriptor: stays open while this lives. patience_seconds: how long a reader that stands still is waited for.
  explicit Output(int descriptor, double patience_seconds = 5) : descriptor_(descriptor), patience_(patience_seconds) {}

  /// Writes `text`, or drops it where it cannot be written, with a warning each time this begins. Never throws.
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
  bool behind_ = false;  ///< the reader stands still, as far as is known
  std::int64_t dropped_ = 0;
};

}  // namespace trireme::train
