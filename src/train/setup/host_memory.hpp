// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "trireme/base/units.hpp"
#include "trireme/planner/replay.hpp"

namespace trireme::train {

/// Throws EnvironmentError where what a run on a GPU keeps in host memory, whose pages are locked, is more than the
/// node has left: the kernel would end a process while they are locked, and report it in its own log only.
void check_host_memory(const planner::Memory& memory, int node_ranks, Bytes available);

}  // namespace trireme::train
