// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "trireme/schedule/needs.hpp"
#include "trireme/schedule/op.hpp"

namespace trireme::executor {

/// The ops of the compute lane that can be launched as one, in the schedule's order: forwards, recomputes and backwards
/// of one microbatch and what reshards their parameters in between. The first one's waits for other lanes are enough
/// for all of them, and what other lanes wait for is enough where it is the last one. A whole microbatch where nothing
/// is gathered or reduced in it; else about a block. Every op that computes is in one of them, but for those that
/// tensor parallelism cut.
[[nodiscard]] std::vector<std::vector<int>> segments(const schedule::Schedule& schedule,
                                                     const std::vector<schedule::Need>& needs);

}  // namespace trireme::executor
