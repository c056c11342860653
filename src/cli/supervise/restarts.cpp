// SPDX-License-Identifier: Apache-2.0
#include "cli/supervise/restarts.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <csignal>

#include "trireme/base/error.hpp"

namespace trireme::cli {

bool is_restartable_code(int code) {
  constexpr std::array signals{SIGKILL, SIGSEGV, SIGBUS, SIGABRT, SIGILL, SIGFPE};
  return code == static_cast<int>(ExitCode::hang) ||
         std::ranges::any_of(signals, [code](int signal) { return code == 128 + signal; });
}

std::optional<std::string> RestartHistory::add(const Failure& failure) {
  if (failure.out_of_memory) {
    if (out_of_memory_step_ == failure.step)
      return fmt::format(
          "a rank ran out of memory twice after step {}: another restart would, too. Use fewer ranks a node, or a plan "
          "that needs less memory (trireme plan RUN.toml --show memory)",
          failure.step);
    out_of_memory_step_ = failure.step;
  }
  without_progress_ = failure.step > furthest_ ? 0 : without_progress_ + 1;
  furthest_ = std::max(furthest_, failure.step);
  if (without_progress_ >= most_)
    return fmt::format(
        "{} attempts ended without a step beyond step {}: the cause is not a node. Look at the first error above",
        without_progress_ + 1, furthest_);
  return std::nullopt;
}

bool fits_before(double end_of_job, double now, double start_seconds, double save_seconds) {
  constexpr double reserve = 1.5;  // a restart after a failure may be slower
  return now + reserve * start_seconds + save_seconds < end_of_job;
}

}  // namespace trireme::cli
