// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>

/// When `trireme supervise` restarts a run: values.
namespace trireme::cli {

/// An end of all ranks that was not requested.
struct Failure {
  int code = 0;           ///< exit code of the launcher
  std::int64_t step = 0;  ///< last finished step
  bool out_of_memory = false;
};

/// Whether ranks that end with `code` may succeed in another attempt: a hang (7), and signals by which the kernel, a
/// launcher or a broken node ends a process. Other codes are permanent errors.
[[nodiscard]] bool is_restartable_code(int code);

/// Failures of one run.
class RestartHistory {
 public:
  /// most: allowed restarts without a step beyond those of earlier attempts.
  explicit RestartHistory(int most_without_progress = 3) : most_(most_without_progress) {}

  /// Adds a failure; the reason if the run must not be restarted.
  [[nodiscard]] std::optional<std::string> add(const Failure& failure);

 private:
  int most_;
  int without_progress_ = 0;
  std::int64_t furthest_ = 0;
  std::optional<std::int64_t> out_of_memory_step_;
};

/// Whether a start, one step and a save fit before the end of the job. start_seconds: the longest so far, the load
/// and the first step included.
[[nodiscard]] bool fits_before(double end_of_job, double now, double start_seconds, double save_seconds);

}  // namespace trireme::cli
