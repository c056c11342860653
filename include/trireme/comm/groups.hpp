// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <string_view>
#include <utility>

#include "trireme/mesh/groups.hpp"
#include "trireme/mpi/communicator.hpp"
#include "trireme/schedule/op.hpp"

namespace trireme::comm {

/// The name under which a group's traffic is counted: its own; "control" on the compute lane, which sums norms, losses
/// and counts.
[[nodiscard]] std::string_view traffic_name(mesh::Group group, schedule::Lane lane);

/// This rank's communicators, by group and lane: every lane has its own thread and communicator, so that messages of
/// different lanes never match.
class Groups {
 public:
  /// Collective over `world`, which outlives the groups. Throws ConfigError when the mesh does not have as many ranks
  /// as `world`.
  Groups(const mpi::Communicator& world, const mesh::Mesh& mesh);

  /// Makes the communicator of a group of `ranks` ranks on a lane: those of `mesh::Mesh::group`, in order, or of a
  /// subgroup of them: consecutive ones, those at equal distances, or the first and the last. Collective over the
  /// world: every rank adds the same communicators in the same order.
  void add(mesh::Group group, schedule::Lane lane, int ranks);

  /// One that was added. Throws BugError for others.
  [[nodiscard]] const mpi::Communicator& at(mesh::Group group, schedule::Lane lane) const;

 private:
  const mpi::Communicator& world_;
  mesh::Mesh mesh_;
  std::map<std::pair<mesh::Group, schedule::Lane>, mpi::Communicator> communicators_;
};

}  // namespace trireme::comm
