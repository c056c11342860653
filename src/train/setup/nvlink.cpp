// SPDX-License-Identifier: Apache-2.0
#include "train/setup/nvlink.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <vector>

#include "trireme/base/log.hpp"
#include "trireme/mesh/groups.hpp"
#include "trireme/mpi/gather.hpp"
#include "trireme/mpi/topology.hpp"

namespace trireme::train {

std::string nvlink_text(const mesh::Mesh& mesh, std::span<const std::string> domains) {
  const mesh::GroupRow& row = mesh::row_of(mesh::Group::shard);
  std::size_t ranks = 0, most = 0;
  for (int rank = 0; rank < mesh.ranks(); ++rank) {
    const mesh::Coordinates at = mesh.coordinates(Rank{rank});
    const bool leads = std::ranges::all_of(
        mesh::axes, [&](const mesh::AxisRow& axis) { return !row.axes.has(axis.axis) || at.*axis.place == 0; });
    if (!leads) continue;  // every group is looked at once, from its first rank
    const std::vector<Rank> group = mesh.group(row.axes, at);
    std::set<std::string> seen;
    for (const Rank& other : group) {
      const std::string& domain = domains[static_cast<std::size_t>(other.value)];
      seen.insert(domain.empty() ? fmt::format("rank {}", other.value) : domain);
    }
    ranks = group.size();
    most = std::max(most, seen.size());
  }
  if (ranks < 2) return "";
  if (most == 1) return fmt::format("each shard group of {} ranks lies inside one NVLink domain", ranks);
  return fmt::format(
      "shard groups of {} ranks span up to {} NVLink domains: what they gather and reduce crosses slower links", ranks,
      most);
}

void log_nvlink(const mesh::Mesh& mesh, const device::Gpu& gpu, const mpi::Communicator& world) {
  // A fabric joins nodes; everything else is a node's own.
  const bool joins = gpu.nvlink.starts_with("fabric");
  const std::string mine = gpu.nvlink.empty() || joins ? gpu.nvlink : fmt::format("{}/{}", mpi::hostname(), gpu.nvlink);
  const std::vector<std::string> domains = mpi::gather_texts(world, mine);
  if (world.rank() != 0) return;
  if (const std::string text = nvlink_text(mesh, domains); !text.empty()) log::info(text);
}

}  // namespace trireme::train
