// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "trireme/comm/device_transports.hpp"
#include "trireme/device/gpus.hpp"
#include "trireme/mpi/communicator.hpp"

namespace trireme::test {

/// Whether NCCL accepts the ranks of `world` on the GPUs that they see: one each, or several on one where each rank has
/// its own NCCL_HOSTID (tests/support/one_gpu_rank.sh). Collective over it.
[[nodiscard]] inline bool nccl_ranks_fit(const mpi::Communicator& world) {
  const auto gpus = device::probe_gpus().gpus;
  if (gpus.empty()) return false;
  return comm::gpu_sharing(world, gpus[static_cast<std::size_t>(world.rank()) % gpus.size()].bus).accepted;
}

inline constexpr const char* no_nccl_between = "needs a GPU for every rank, or an NCCL_HOSTID of its own";

}  // namespace trireme::test
