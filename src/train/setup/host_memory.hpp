// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "trireme/base/units.hpp"
#include "trireme/planner/replay.hpp"

namespace trireme::train {

/// Throws EnvironmentError if the page-locked host memory of a run on a GPU exceeds the node's available memory: the
/// kernel would kill a process while locking, with a report in its own log only.
void check_host_memory(const planner::Memory& memory, int node_ranks, Bytes available);

}  // namespace trireme::train
