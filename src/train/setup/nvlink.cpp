// SPDX-License-Identifier: Apache-2.0
#include "train/setup/nvlink.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <map>
#include <utility>

#include "trireme/base/log.hpp"
#include "trireme/mesh/groups.hpp"
#include "trireme/mpi/gather.hpp"
#include "trireme/mpi/topology.hpp"

namespace trireme::train {

namespace {

/// The sizes of a group's parts in one NVLink domain each, the largest first; empty if no rank has NVLink.
using Parts = std::vector<int>;

/// Groups with the same placement.
struct Alike {
  int groups = 0;
  std::vector<std::vector<Rank>> first;  ///< ranks of the first of them
};

constexpr std::size_t most_shown = 4;  // of anything of which a large job has many

Parts parts_of(const std::vector<Rank>& group, std::span<const std::string> domains) {
  std::map<std::string, int> sizes;
  bool any = false;
  for (const Rank& rank : group) {
    const std::string& domain = domains[static_cast<std::size_t>(rank.value)];
    any = any || !domain.empty();
    ++sizes[domain.empty() ? fmt::format("rank {}", rank.value) : domain];
  }
  Parts parts;
  for (const auto& [domain, size] : sizes) parts.push_back(size);
  std::ranges::sort(parts, std::greater{});
  return any ? parts : Parts{};
}

/// Such as "0-3, 8-11".
std::string ranks_text(const std::vector<Rank>& ranks) {
  std::vector<std::string> runs;
  for (std::size_t i = 0, end = 0; i < ranks.size() && runs.size() <= most_shown; i = end) {
    for (end = i + 1; end < ranks.size() && ranks[end].value == ranks[end - 1].value + 1; ++end) {
    }
    const int last = ranks[end - 1].value;
    runs.push_back(runs.size() == most_shown ? "..."
                   : end == i + 1            ? fmt::format("{}", last)
                                             : fmt::format("{}-{}", ranks[i].value, last));
  }
  return fmt::format("{}", fmt::join(runs, ", "));
}

std::string parts_text(const Parts& parts) {
  if (parts.size() > 1 && parts.front() == parts.back())
    return fmt::format("{} NVLink domains of {} rank{} each", parts.size(), parts.front(),
                       parts.front() == 1 ? "" : "s");
  const std::size_t shown = std::min(parts.size(), most_shown);
  return fmt::format("{} NVLink domains of {}{} ranks", parts.size(),
                     fmt::join(parts.begin(), parts.begin() + static_cast<std::ptrdiff_t>(shown), " + "),
                     shown < parts.size() ? " + ..." : "");
}

std::string text_of(const Parts& parts, const Alike& alike) {
  const char* s = alike.groups == 1 ? "" : "s";
  std::string where;
  for (const std::vector<Rank>& group : alike.first)
    where += fmt::format("{}{}", where.empty() ? "ranks " : "; ", ranks_text(group));
  if (static_cast<std::size_t>(alike.groups) > alike.first.size()) where += "; ...";
  const std::string head =
      fmt::format("{} shard group{} of {} ranks ({})", alike.groups, s, alike.first.front().size(), where);
  if (parts.empty()) return head + ": no NVLink";
  if (parts.size() == 1) return fmt::format("{}: inside one NVLink domain{}", head, alike.groups == 1 ? "" : " each");
  return fmt::format("{}: over {}; what crosses them takes slower links", head, parts_text(parts));
}

}  // namespace

std::vector<std::string> nvlink_lines(const mesh::Mesh& mesh, std::span<const std::string> domains) {
  const mesh::GroupRow& row = mesh::row_of(mesh::Group::shard);
  std::map<Parts, Alike> kinds;
  for (int rank = 0; rank < mesh.ranks(); ++rank) {
    const mesh::Coordinates at = mesh.coordinates(Rank{rank});
    const bool leads = std::ranges::all_of(
        mesh::axes, [&](const mesh::AxisRow& axis) { return !row.axes.has(axis.axis) || at.*axis.place == 0; });
    if (!leads) continue;  // every group is looked at once, from its first rank
    std::vector<Rank> group = mesh.group(row.axes, at);
    if (group.size() < 2) return {};
    Alike& alike = kinds[parts_of(group, domains)];
    ++alike.groups;
    if (alike.first.size() < most_shown) alike.first.push_back(std::move(group));
  }
  std::vector<std::string> lines;
  for (const auto& [parts, alike] : kinds) {
    if (lines.size() == 2 * most_shown) {
      lines.push_back(fmt::format("shard groups lie over NVLink domains in {} more ways", kinds.size() - lines.size()));
      break;
    }
    lines.push_back(text_of(parts, alike));
  }
  return lines;
}

std::string nvlink_domain(const device::Gpu& gpu) {
  // A fabric joins nodes; everything else is a node's own.
  if (gpu.nvlink.starts_with("fabric")) return gpu.nvlink;
  return fmt::format("{}/{}", mpi::hostname(), gpu.nvlink.empty() ? gpu.bus : gpu.nvlink);
}

void log_nvlink(const mesh::Mesh& mesh, const device::Gpu& gpu, const mpi::Communicator& world) {
  const std::vector<std::string> domains = mpi::gather_texts(world, gpu.nvlink.empty() ? "" : nvlink_domain(gpu));
  if (world.rank() != 0) return;
  for (const std::string& line : nvlink_lines(mesh, domains)) log::info(line);
}

}  // namespace trireme::train
