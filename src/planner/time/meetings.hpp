// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <vector>

#include "trireme/planner/time/simulate.hpp"

namespace trireme::planner {

/// Dependencies between ops of different pipeline ranks, numbered in the concatenated lists of all ranks, as in
/// `needs`. A send waits for the needs of its receive, a receive for its send; each rank's norm waits for the needs of
/// all norms, as do the two sums of a tied embedding. Throws BugError for a send without a receive.
[[nodiscard]] std::vector<schedule::Need> needs_between(std::span<const RankStep> ranks,
                                                        std::span<const schedule::Need> needs);

}  // namespace trireme::planner
