// SPDX-License-Identifier: Apache-2.0
#include "trireme/comm/groups.hpp"

#include <fmt/format.h>

#include "trireme/base/error.hpp"

namespace trireme::comm {
namespace {

// A group's colour: the place of its first rank among all groups of its kind. Its ranks agree on it and nobody else has
// it.
int colour(Group group, const mesh::Mesh& mesh, mesh::Coordinates at) {
  switch (group) {
    case Group::replicate: at.replicate = 0; break;
    case Group::shard: at.shard = 0; break;
    case Group::tensor: at.tensor = 0; break;
    case Group::dp: at.replicate = at.shard = 0; break;
    case Group::world:
    case Group::shard_group:
    case Group::tensor_group: return 0;
  }
  return mesh.rank_of(at).value;
}

}  // namespace

std::string_view to_text(Lane lane) {
  switch (lane) {
    case Lane::compute: return "compute";
    case Lane::gather: return "gather";
    case Lane::reduce: return "reduce";
    case Lane::control: return "control";
  }
  return "?";
}

std::string_view to_text(Group group) {
  switch (group) {
    case Group::replicate: return "replicate";
    case Group::shard: return "shard";
    case Group::tensor: return "tensor";
    case Group::dp: return "dp";
    case Group::world: return "world";
    case Group::shard_group: return "shard_group";
    case Group::tensor_group: return "tensor_group";
  }
  return "?";
}

std::string_view traffic_name(Group group, Lane lane) {
  const bool control = lane == Lane::control || group == Group::dp || group == Group::world;
  return control ? "control" : to_text(group);
}

Groups::Groups(const mpi::Communicator& world, const mesh::Mesh& mesh) {
  if (mesh.ranks() != world.size())
    throw ConfigError(fmt::format(
        "The mesh {} needs {} ranks, but the job has {}. Start {} ranks, or change [mesh] (shard = -1 takes the "
        "ranks that are left).",
        mesh.text(), mesh.ranks(), world.size(), mesh.ranks()));
  const mesh::Coordinates at = mesh.coordinates(Rank{world.rank()});
  communicators_.reserve(all_groups.size() * all_lanes.size());
  for (const Group group : all_groups) {
    // Ranks keep their order: along an axis it is the order of coordinates, within dp that of dp ranks.
    communicators_.push_back(world.split(colour(group, mesh, at), world.rank()));
    const std::size_t first = communicators_.size() - 1;
    for (std::size_t lane = 1; lane < all_lanes.size(); ++lane)
      communicators_.push_back(communicators_[first].duplicate());
  }
}

const mpi::Communicator& Groups::at(Group group, Lane lane) const {
  return communicators_[static_cast<std::size_t>(group) * all_lanes.size() + static_cast<std::size_t>(lane)];
}

}  // namespace trireme::comm
