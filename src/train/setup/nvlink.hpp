// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>

#include "trireme/device/gpus.hpp"
#include "trireme/mesh/mesh.hpp"
#include "trireme/mpi/communicator.hpp"

namespace trireme::train {

/// Whether each shard group, whose ranks gather and reduce every block, lies inside one NVLink domain. domains: of
/// every rank, empty where a GPU has no NVLink. Empty for groups of one rank.
[[nodiscard]] std::string nvlink_text(const mesh::Mesh& mesh, std::span<const std::string> domains);

/// Logs that on rank 0. Collective over `world`.
void log_nvlink(const mesh::Mesh& mesh, const device::Gpu& gpu, const mpi::Communicator& world);

}  // namespace trireme::train
