// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "trireme/executor/executor.hpp"
#include "trireme/mpi/topology.hpp"

namespace trireme::train {

/// Threads for updates on the host, one at least: the cores that a rank's `threads` leave, which compute; where it
/// computes on a GPU, these threads except the launching one.
[[nodiscard]] int host_threads(const mpi::Topology& topology, int threads, bool on_gpu);

/// Message when offloaded updates have no core to themselves, or on a GPU one only, with the bandwidth that they
/// reached; empty when they have, or when nothing is offloaded.
[[nodiscard]] std::string few_cores_warning(const mpi::Topology& topology, int threads, bool on_gpu,
                                            const executor::HostWork& work);

}  // namespace trireme::train
