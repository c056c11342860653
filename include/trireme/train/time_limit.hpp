// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>

namespace trireme::train {

/// The end of the job that this process runs in, where the scheduler tells it: SLURM_JOB_END_TIME, in seconds since
/// 1970.
class TimeLimit {
 public:
  /// before_limit: train.stop_before_limit_seconds. rank_bytes: what a rank writes, to guess how long a first save will
  /// take. Warns when a time before the limit is asked for and the limit is not known; on one rank.
  TimeLimit(std::optional<double> before_limit, std::int64_t rank_bytes);

  /// Whether the step that begins now has to be the last before the save: after another one, the rest of the time would
  /// not hold it, or be less than asked for. step_seconds, save_seconds: the longest so far; 0: not known yet.
  [[nodiscard]] bool reached(double step_seconds, double save_seconds) const {
    return left() < reserve(step_seconds, save_seconds);
  }
  /// What has to be left when a step begins after which the run goes on.
  [[nodiscard]] double reserve(double step_seconds, double save_seconds) const;
  /// Seconds until the end; infinite where none is known.
  [[nodiscard]] double left() const;

 private:
  double before_limit_;
  double rank_bytes_;
  std::optional<double> end_;
};

}  // namespace trireme::train
