// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "trireme/schedule/needs.hpp"
#include "trireme/schedule/op.hpp"

namespace trireme::executor {

/// The ops of the compute lane that can be launched as one, in the schedule's order: forwards,
/// recomputes and backwards of one microbatch and the reshards of their parameters in between.
/// Only the first op of a segment waits for other lanes, and other lanes wait only for its
/// last. A segment is a whole microbatch if it has no gather or reduction; otherwise about a
/// block. Every compute op is in one of them, except for those of partitioned stages.
[[nodiscard]] std::vector<std::vector<int>> segments(const schedule::Schedule& schedule,
                                                     const std::vector<schedule::Need>& needs);

}  // namespace trireme::executor
