// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <string_view>
#include <vector>

#include "trireme/mesh/mesh.hpp"
#include "trireme/mpi/communicator.hpp"

namespace trireme::comm {

/// Who calls a collective: every lane has its own thread and its own communicator per group, so that what one lane
/// launches never meets another lane's messages.
enum class Lane { compute, gather, reduce, control };
inline constexpr std::array all_lanes{Lane::compute, Lane::gather, Lane::reduce, Lane::control};
[[nodiscard]] std::string_view to_text(Lane lane);

/// The groups that this rank belongs to. dp = replicate x shard at one tensor rank, ordered by dp rank. shard_group:
/// neighbours on the shard axis that keep a copy of the parameters; tensor_group: neighbours on the tensor axis that
/// share key and value heads. The mesh makes all but these two.
enum class Group { replicate, shard, tensor, dp, world, shard_group, tensor_group };
inline constexpr std::array all_groups{Group::replicate, Group::shard, Group::tensor, Group::dp, Group::world};
[[nodiscard]] std::string_view to_text(Group group);

/// The name under which a group's traffic is counted: "shard", "replicate" or "tensor"; "control" for dp, world and the
/// control lane.
[[nodiscard]] std::string_view traffic_name(Group group, Lane lane);

/// This rank's communicators: one for each (group, lane). Its ranks are those of the mesh along the group's axis, in
/// order.
class Groups {
 public:
  /// Collective over `world`; every rank creates all of them, in the same order: one split a group, one duplicate a
  /// lane. Throws ConfigError when the mesh does not have as many ranks as `world`.
  Groups(const mpi::Communicator& world, const mesh::Mesh& mesh);

  [[nodiscard]] const mpi::Communicator& at(Group group, Lane lane) const;

 private:
  std::vector<mpi::Communicator> communicators_;  // [group][lane]
};

}  // namespace trireme::comm
