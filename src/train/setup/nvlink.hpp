// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>
#include <vector>

#include "trireme/device/gpus.hpp"
#include "trireme/mesh/mesh.hpp"
#include "trireme/mpi/communicator.hpp"

namespace trireme::train {

/// Equal for ranks whose GPUs reach each other over NVLink, or that share one GPU.
[[nodiscard]] std::string nvlink_domain(const device::Gpu& gpu);

/// Placement of the shard groups, whose ranks gather and reduce every block, on NVLink domains: a line for all groups
/// with the same placement, with their number and the ranks of the first of them; few lines for any number of ranks.
/// domains: of every rank, empty for a GPU without NVLink. Empty for groups of one rank.
[[nodiscard]] std::vector<std::string> nvlink_lines(const mesh::Mesh& mesh, std::span<const std::string> domains);

/// Logs that on rank 0. Collective over `world`.
void log_nvlink(const mesh::Mesh& mesh, const device::Gpu& gpu, const mpi::Communicator& world);

}  // namespace trireme::train
