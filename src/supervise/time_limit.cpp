// SPDX-License-Identifier: Apache-2.0
#include "trireme/supervise/time_limit.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <limits>
#include <string_view>

#include "trireme/base/error.hpp"
#include "trireme/base/log.hpp"
#include "trireme/base/unix_time.hpp"

namespace trireme::supervise {
namespace {

constexpr double slack = 1.5;                  // a step or a save may take longer than the longest so far
constexpr double first_save_seconds = 20;      // besides its bytes
constexpr double slow_bytes_per_second = 1e8;  // of one rank, on a busy file system

std::optional<double> end_of_job() {
  const char* variable = std::getenv("SLURM_JOB_END_TIME");
  if (variable == nullptr) return std::nullopt;
  const std::string_view text = variable;
  std::int64_t seconds = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), seconds);
  if (error != std::errc() || end != text.data() + text.size() || seconds <= 0) {
    log::warning(
        fmt::format("SLURM_JOB_END_TIME is \"{}\", not a time in whole seconds since 1970: the run will not "
                    "stop before the time limit",
                    text));
    return std::nullopt;
  }
  const double left = static_cast<double>(seconds) - unix_seconds();
  if (left <= 0) {
    log::warning(
        fmt::format("SLURM_JOB_END_TIME is {:.0f} s ago: it is of another job, and ignored. The run will not "
                    "stop before the time limit",
                    -left));
    return std::nullopt;
  }
  return static_cast<double>(seconds);
}

}  // namespace

TimeLimit::TimeLimit(std::optional<double> before_limit, std::int64_t rank_bytes)
    : before_limit_(before_limit.value_or(0)), rank_bytes_(static_cast<double>(rank_bytes)), end_(end_of_job()) {
  if (before_limit && !end_)
    log::warning(
        "train.stop_before_limit_seconds: the time limit of this job is unknown (SLURM_JOB_END_TIME is not set), so "
        "only a signal stops it");
  if (left() < before_limit_)
    throw ConfigError(fmt::format(
        "train.stop_before_limit_seconds = {:.0f}, but the job has only {:.0f} s left at the start: no step "
        "would be trained. Ask for a longer job, or set it to less.",
        before_limit_, left()));
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
