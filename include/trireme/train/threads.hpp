// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "trireme/comm/topology.hpp"

namespace trireme::train {

/// Threads of this rank's compute lane (comm::threads_for_rank), set for libtorch and OpenMP. Returns them. Kokkos,
/// when it is up already, must have been given the same number.
int use_threads(const comm::Topology& topology, std::int64_t device_threads);

}  // namespace trireme::train
