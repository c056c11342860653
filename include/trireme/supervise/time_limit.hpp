// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>

namespace trireme::supervise {

/// Longest durations of a run's actions between two checks of the time, in seconds; 0: unknown.
struct Durations {
  double step = 0;
  double save = 0;
  double evaluation_batch = 0;  ///< an evaluation may stop before each
  double exporting = 0;         ///< after a save, with run.export = "every_checkpoint"
};

/// End of the job according to the scheduler: SLURM_JOB_END_TIME, in seconds since
/// 1970. Unknown if that is no number or has passed already (inherited from another job).
class TimeLimit {
 public:
  /// before_limit: train.stop_before_limit_seconds. rank_bytes: bytes that a rank writes, to estimate the first save.
  /// Warns if before_limit is set and the limit is unknown; throws ConfigError if less than before_limit
  /// is left already; on one rank.
  TimeLimit(std::optional<double> before_limit, std::int64_t rank_bytes);

  /// Whether the step, or the batch of an evaluation, that begins now has to be the last before the save: after another
  /// one, the remaining time would be too short for save and export, or shorter than before_limit.
  [[nodiscard]] bool reached(const Durations& longest) const { return left() < reserve(longest); }
  /// Minimum of `left` when a step or a batch begins that is not the last one.
  [[nodiscard]] double reserve(const Durations& longest) const;
  /// Seconds until the end; infinite if none is known.
  [[nodiscard]] double left() const;

 private:
  double before_limit_;
  double rank_bytes_;
  std::optional<double> end_;
};

}  // namespace trireme::supervise
