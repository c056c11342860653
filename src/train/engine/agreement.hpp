// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "trireme/base/ids.hpp"
#include "trireme/mesh/mesh.hpp"
#include "trireme/mpi/communicator.hpp"

namespace trireme::train {

/// Throws on every rank unless all ranks run the same build (ConfigError with the differences) and every rank is the dp
/// rank of its coordinates in the mesh (EnvironmentError). Both name the ranks. Collective over `world`.
void agree_on_build_and_places(const mpi::Communicator& world, const mesh::Mesh& mesh, DpRank mine);

/// Mistakes in the ranks' dp ranks, by rank; empty without any.
[[nodiscard]] std::string misplaced(const mesh::Mesh& mesh, const std::vector<int>& dp_ranks);

}  // namespace trireme::train
