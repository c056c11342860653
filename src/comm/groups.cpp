// SPDX-License-Identifier: Apache-2.0
#include "trireme/comm/groups.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "trireme/base/error.hpp"

namespace trireme::comm {

std::string_view traffic_name(mesh::Group group, schedule::Lane lane) {
  return lane == schedule::Lane::compute ? "control" : mesh::row_of(group).traffic;
}

Groups::Groups(const mpi::Communicator& world, const mesh::Mesh& mesh) : world_(world), mesh_(mesh) {
  if (mesh.ranks() != world.size())
    throw ConfigError(fmt::format(
        "The mesh {} needs {} ranks, but the job has {}. Start {} ranks, or change [mesh] (shard = -1 takes the "
        "ranks that are left).",
        mesh.text(), mesh.ranks(), world.size(), mesh.ranks()));
}

void Groups::add(mesh::Group group, schedule::Lane lane, int ranks) {
  const mesh::GroupRow& row = mesh::row_of(group);
  const Rank mine{world_.rank()};
  const std::vector<Rank> along = mesh_.group(row.axes, mesh_.coordinates(mine));
  const int all = static_cast<int>(along.size());
  const bool ends = row.members == mesh::Members::ends;
  invariant(ends                                ? ranks == 2 && all > 1
            : row.members == mesh::Members::all ? ranks == all
                                                : all % ranks == 0,
            fmt::format("{} of {} ranks in {}", row.name, ranks, all));
  const auto place = static_cast<int>(std::ranges::find(along, mine) - along.begin());
  // Its first rank is the colour: its ranks agree on it, and no other group of its kind has it. Ranks keep their order:
  // along an axis it is the order of coordinates, within dp that of dp ranks.
  const int first_place = ends                                    ? (place + 1 == all ? 0 : place)
                          : row.members == mesh::Members::strided ? place % (all / ranks)
                                                                  : place / ranks * ranks;
  const Rank first = along[static_cast<std::size_t>(first_place)];
  const bool added = communicators_.try_emplace({group, lane}, world_.split(first.value, mine.value)).second;
  invariant(added, fmt::format("{}/{} is added once", row.name, schedule::to_text(lane)));
}

const mpi::Communicator& Groups::at(mesh::Group group, schedule::Lane lane) const {
  const auto found = communicators_.find({group, lane});
  invariant(found != communicators_.end(),
            fmt::format("no communicator of {} on the {} lane", mesh::to_text(group), schedule::to_text(lane)));
  return found->second;
}

}  // namespace trireme::comm
