// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

namespace trireme::cli {

/// Origin of a log line.
struct Logger {
  int rank = 0;
  std::string host;
  bool clears_line = false;  ///< a progress line may be where the log is printed: it is erased first
};

/// Sends the log to standard error, one line a message: "2026-11-03T12:00:00.123Z warning [rank 3 node7] ...", UTC.
/// Rank 0 logs without its name, infos included; the others log warnings and errors. level: debug, info, warning
/// or error instead (TRIREME_LOG); debug shows on rank 0 only. Empty: info. Throws ConfigError for another word.
void install_log(const Logger& logger, std::string_view level);

}  // namespace trireme::cli
