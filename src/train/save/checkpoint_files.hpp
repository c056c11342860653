// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "trireme/mesh/mesh.hpp"

namespace trireme::train {

/// Advice on checkpoint.ranks_per_file, where a checkpoint has more files than one directory takes quickly: the data
/// parallel ranks of a node share one. storage: as checkpoints see the mesh. node_ranks: ranks of this node. "": the
/// files are few, or that many ranks share one already.
[[nodiscard]] std::string ranks_per_file_hint(const mesh::Mesh& storage, std::int64_t ranks_per_file, int node_ranks);

}  // namespace trireme::train
