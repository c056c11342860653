// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <vector>

#include "trireme/planner/time/simulate.hpp"

namespace trireme::planner {

/// What ops of different pipeline ranks wait for, numbered as all ranks' lists laid end to end, as `needs` is: a send
/// waits for what its receive waits for, and a receive for its send; all ranks' norms wait for what each waits for, and
/// so do both ranks' sums of a tied embedding. Throws BugError where a send has no receive.
[[nodiscard]] std::vector<schedule::Need> needs_between(std::span<const RankStep> ranks,
                                                        std::span<const schedule::Need> needs);

}  // namespace trireme::planner
