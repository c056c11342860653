// SPDX-License-Identifier: Apache-2.0
#include "trireme/supervise/time_limit.hpp"

#include <algorithm>
#include <cstdlib>
#include <limits>

#include "trireme/base/log.hpp"
#include "trireme/base/unix_time.hpp"

namespace trireme::supervise {
namespace {

constexpr double slack = 1.5;                  // a step or a save may take longer than the longest so far
constexpr double first_save_seconds = 20;      // besides its bytes
constexpr double slow_bytes_per_second = 1e8;  // of one rank, on a busy file system

std::optional<double> end_of_job() {
  const char* text = std::getenv("SLURM_JOB_END_TIME");
  if (text == nullptr) return std::nullopt;
  char* end = nullptr;
  const double seconds = std::strtod(text, &end);
  if (end == text || *end != '\0' || seconds <= 0) {
    log::warning("SLURM_JOB_END_TIME is not a valid time: the run will not stop before the time limit");
    return std::nullopt;
  }
  return seconds;
}

}  // namespace

TimeLimit::TimeLimit(std::optional<double> before_limit, std::int64_t rank_bytes)
    : before_limit_(before_limit.value_or(0)), rank_bytes_(static_cast<double>(rank_bytes)), end_(end_of_job()) {
  if (before_limit && !end_)
    log::warning(
        "train.stop_before_limit_seconds: the time limit of this job is unknown (SLURM_JOB_END_TIME is not set), so "
        "only a "
        "signal stops it");
}

double TimeLimit::left() const {
  if (!end_) return std::numeric_limits<double>::infinity();
  return *end_ - unix_seconds();
}

double TimeLimit::reserve(const Durations& longest) const {
  const double save =
      longest.save > 0 ? slack * longest.save : first_save_seconds + rank_bytes_ / slow_bytes_per_second;
  const double step = slack * std::max(longest.step, longest.evaluation_batch);
  return step + std::max(before_limit_, step + save + slack * longest.exporting);
}

}  // namespace trireme::supervise
