// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "trireme/mesh/mesh.hpp"
#include "trireme/train/engine/job.hpp"

namespace trireme::train {

/// XXH3 digest of this rank's masters and moments; waits for the updates that other lanes are still at.
[[nodiscard]] std::uint64_t state_digest(Job& job);

/// Dp ranks whose bits are not those of the other replicas of their shard.
struct Drift {
  std::vector<int> wrong;      ///< most replicas of their shard hold other bits, and agree on them
  std::vector<int> undecided;  ///< no such majority: one of these is wrong, and the bits do not show which
  friend bool operator==(const Drift&, const Drift&) = default;
};

/// Compares the replicas of every shard. The largest group of equal ones is right if it is the only one of its size and
/// not a single rank; so two replicas never decide. digests: by dp rank.
[[nodiscard]] Drift compare_replicas(const mesh::Mesh& mesh, const std::vector<std::uint64_t>& digests);

/// Message for a drift; empty when there is none. name: of a dp rank.
[[nodiscard]] std::string to_text(const Drift& drift, const mesh::Mesh& mesh,
                                  const std::function<std::string(int dp_rank)>& name);

/// Replicas must hold equal bits: they started from the same and applied the same sums. A difference is a silent
/// corruption of memory or arithmetic. Collective over the dp group, on the compute lane; other lanes may be running.
/// Throws NumericsError on every rank, naming the ranks.
void check_replicas(Job& job);

}  // namespace trireme::train
