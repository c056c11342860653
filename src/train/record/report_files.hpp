// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <map>
#include <string>

namespace trireme::train {

/// Whole files of a run (traces, step times, the memory snapshot) that never end it. One that cannot be written is
/// kept in memory, with a warning, and tried again; a reader finds the old file or the new one.
class ReportFiles {
 public:
  /// most_kept_bytes: beyond them a file that cannot be written is dropped.
  explicit ReportFiles(std::size_t most_kept_bytes = std::size_t{256} << 20) : most_kept_bytes_(most_kept_bytes) {}
  ReportFiles(const ReportFiles&) = delete;
  ReportFiles& operator=(const ReportFiles&) = delete;
  ~ReportFiles() { finish(); }

  /// Writes `text` as the file at `path`, and replaces a former text that is there or pending. Never throws.
  void write(const std::string& path, std::string text);
  /// Whether something is kept that `retry` writes now.
  [[nodiscard]] bool due() const;
  /// Tries to write kept files again, at most once a second.
  void retry();
  /// Tries again, with a warning for each lost file.
  void finish();

 private:
  [[nodiscard]] bool put(const std::string& path, const std::string& text);

  std::size_t most_kept_bytes_;
  std::map<std::string, std::string> kept_;  ///< text by path
  std::map<std::string, bool> warned_;       ///< by path
  std::chrono::steady_clock::time_point tried_{};
};

}  // namespace trireme::train
