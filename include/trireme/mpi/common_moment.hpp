// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>

namespace trireme::mpi {

class Communicator;

/// One moment, the same for all ranks, as the steady clock of this rank shows it. Exact within rank 0's node; elsewhere
/// to half the fastest round trip of some messages between the nodes' first ranks (Cristian 1989). Collective over
/// `world`, O(nodes).
[[nodiscard]] std::chrono::steady_clock::time_point common_moment(const Communicator& world);

}  // namespace trireme::mpi
