// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "trireme/executor/executor.hpp"
#include "trireme/mpi/topology.hpp"

namespace trireme::train {

/// Threads for updates on the host beside `compute_threads`: the cores that a rank has left, one at least.
[[nodiscard]] int host_threads(const mpi::Topology& topology, int compute_threads);

/// What to say when offloaded updates have no core of their own, with the bandwidth that they reached; empty when they
/// have, or when nothing is offloaded.
[[nodiscard]] std::string few_cores_warning(const mpi::Topology& topology, int compute_threads,
                                            const executor::HostWork& work);

}  // namespace trireme::train
