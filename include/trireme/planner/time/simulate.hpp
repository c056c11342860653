// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <span>
#include <vector>

#include "trireme/planner/time/costs.hpp"
#include "trireme/schedule/needs.hpp"

/// Runs a schedule on lanes against a clock that only counts.
namespace trireme::planner {

/// When one op ran.
struct Interval {
  double begin = 0;
  double end = 0;
  int cause = -1;  ///< the op of this rank whose end it waited for last; -1: nothing, or another rank's
};

/// One step in the middle of a run: it waits for the previous step, and the next one begins after it.
struct Timeline {
  std::vector<Interval> ops;  ///< by op, on a clock that is zero when the step before ended on the compute lane
  double seconds = 0;         ///< from the end of one step's compute lane to that of the next
  std::array<double, schedule::lanes> busy{};   ///< seconds that a lane works
  std::array<double, schedule::lanes> waits{};  ///< idle seconds of compute, by the lane it waits for
  double contention = 0;                        ///< seconds that compute takes longer because of communication
};

/// Simulates some steps and returns a middle one. An op starts when all of its dependencies
/// have ended; lanes keep their order (both are `needs`). Ops on the same wire share its
/// bandwidth evenly; those that access host memory slow each other down if together they
/// exceed its bandwidth; a compute op runs at 1 / (1 + contention) of its speed during
/// communication. Throws ConfigError if a cost or the contention is negative or not finite.
[[nodiscard]] Timeline simulate(const schedule::Schedule& schedule, const std::vector<schedule::Need>& needs,
                                const std::vector<Cost>& costs, double contention);

/// Ops of one pipeline rank.
struct RankStep {
  const schedule::Schedule& schedule;
  const std::vector<schedule::Need>& needs;
  const std::vector<Cost>& costs;
};

/// The same for all ranks of a pipeline, which meet: a send begins when its receive may begin too, and both end
/// together; the norm, and sums over the pipeline, begin on all their ranks at once. Wires are each rank's own.
[[nodiscard]] std::vector<Timeline> simulate(std::span<const RankStep> ranks, double contention);

}  // namespace trireme::planner
