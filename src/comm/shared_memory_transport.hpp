// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "trireme/base/units.hpp"

namespace trireme::mpi {
class Communicator;
}  // namespace trireme::mpi

namespace trireme::comm {

class Transport;
struct StagingSource;

/// Double buffer between a writing rank and its readers: small enough to stay in a core's second-level cache.
inline constexpr Bytes shared_memory_staging{1 << 20};

/// True when all ranks of the group share one node. Collective.
[[nodiscard]] bool within_one_node(const mpi::Communicator& communicator);

/// Collectives of ranks on one node through a shared segment: half the copies of MPI's. `communicator` must outlive it.
/// Collective. Throws EnvironmentError, on all ranks alike, when the segment cannot be had.
/// staging_bytes: this rank's part of the segment.
[[nodiscard]] std::unique_ptr<Transport> shared_memory_transport(const mpi::Communicator& communicator,
                                                                 const StagingSource& staging,
                                                                 Bytes staging_bytes = shared_memory_staging);

}  // namespace trireme::comm
