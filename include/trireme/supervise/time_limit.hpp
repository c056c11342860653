// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>

namespace trireme::supervise {

/// How long what a run does between two looks at the clock took at most, in seconds; 0: not known yet.
struct Durations {
  double step = 0;
  double save = 0;
  double evaluation_batch = 0;  ///< an evaluation may stop before each
  double exporting = 0;         ///< behind a save, with run.export = "every_checkpoint"
};

/// The end of the job that this process runs in, where the scheduler tells it: SLURM_JOB_END_TIME, in seconds since
/// 1970. None is known where that is no number, or is past already (inherited from another job).
class TimeLimit {
 public:
  /// before_limit: train.stop_before_limit_seconds. rank_bytes: what a rank writes, to guess how long a first save will
  /// take. Warns when a time before the limit is asked for and the limit is not known; throws ConfigError when less
  /// than it is left already; on one rank.
  TimeLimit(std::optional<double> before_limit, std::int64_t rank_bytes);

  /// Whether the step, or the batch of an evaluation, that begins now has to be the last before the save: after another
  /// one, the rest of the time would not hold save and export, or be less than asked for.
  [[nodiscard]] bool reached(const Durations& longest) const { return left() < reserve(longest); }
  /// What has to be left when a step or a batch begins after which the run continues.
  [[nodiscard]] double reserve(const Durations& longest) const;
  /// Seconds until the end; infinite where none is known.
  [[nodiscard]] double left() const;

 private:
  double before_limit_;
  double rank_bytes_;
  std::optional<double> end_;
};

}  // namespace trireme::supervise
