// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "trireme/mpi/topology.hpp"

namespace trireme::train {

/// Threads of this rank's compute lane (mpi::threads_for_rank), set for libtorch and OpenMP. Returns them. Kokkos,
/// when it is up already, must have been given the same number.
int use_threads(const mpi::Topology& topology, std::int64_t device_threads);

}  // namespace trireme::train
