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

/// Messages that are still long with many ranks: a receive buffer is a part of this.
inline constexpr Bytes mpi_staging{4 << 20};
/// Upper bound of staging, so that messages of many ranks stay long.
inline constexpr Bytes most_mpi_staging{32 << 20};

/// Elements of a chunk of a reduce-scatter, of which two are in progress; slot_bytes: bytes of one element of a chunk,
/// with the terms of all ranks. At least 1,024 if they fit `most_mpi_staging`, and 16 in any case.
[[nodiscard]] std::int64_t chunk_elements(std::int64_t slot_bytes, Bytes staging_bytes);

/// Collectives over MPI point to point, in chunks: works for every group. `communicator` must outlive it, without
/// other users. Reduce-scatter is an all-to-all and our own sum: MPI's own sums in an order that depends
/// on the algorithm it picks, and was measured at a quarter of the speed. staging_bytes: bound of the
/// receive buffers, allocated at the first reduction.
[[nodiscard]] std::unique_ptr<Transport> mpi_transport(const mpi::Communicator& communicator,
                                                       const StagingSource& staging, Bytes staging_bytes = mpi_staging);

}  // namespace trireme::comm
