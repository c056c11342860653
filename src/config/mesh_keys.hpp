// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "trireme/config/run_config.hpp"
#include "trireme/mesh/mesh.hpp"

namespace trireme::config {

/// The key of [mesh] that sets the size of an axis.
struct MeshKey {
  mesh::Axis axis;
  std::int64_t Mesh::*size;
  std::string_view meaning;
};

/// One for each axis, in the order of the run file.
inline constexpr std::array mesh_keys{
    MeshKey{mesh::Axis::replicate, &Mesh::replicate, "number of replicas of the sharded model (hybrid sharding, HSDP)"},
    MeshKey{
        mesh::Axis::shard, &Mesh::shard,
        "number of ranks over which parameters, gradients and optimizer state are sharded (-1: all remaining ranks)"},
    MeshKey{mesh::Axis::tensor, &Mesh::tensor, "tensor-parallel size"},
    MeshKey{mesh::Axis::context, &Mesh::context,
            "context-parallel size: every sequence is divided over as many ranks (context.method)"},
    MeshKey{mesh::Axis::pipeline, &Mesh::pipeline, "pipeline-parallel size: the layers are divided over as many ranks"},
};

/// The axis that takes the ranks that the others leave.
inline constexpr mesh::Axis remaining_axis = mesh::Axis::shard;

}  // namespace trireme::config
