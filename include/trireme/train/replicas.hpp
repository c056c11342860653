// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trireme/mesh/mesh.hpp"
#include "trireme/train/job.hpp"

namespace trireme::train {

/// XXH3 digest of this rank's masters and moments.
[[nodiscard]] std::uint64_t state_digest(Job& job);

/// Says which ranks hold another state than the other replicas of their shard; empty when all agree. digests: by dp
/// rank. Where more than one replica differs from the first, the largest group of equals is taken as right (of equals,
/// the one with the lowest rank).
[[nodiscard]] std::string drifted(const mesh::Mesh& mesh, const std::vector<std::uint64_t>& digests);

/// Replicas must hold equal bits: they started from the same and applied the same sums. A difference is a silent
/// corruption of memory or arithmetic. Collective over the dp group, on the compute lane. Throws NumericsError on every
/// rank, naming the ranks.
void check_replicas(Job& job);

}  // namespace trireme::train
