// SPDX-License-Identifier: Apache-2.0
#include "trireme/executor/links.hpp"

#include <fmt/format.h>

#include "trireme/base/error.hpp"

namespace trireme::executor {
namespace {

using device::Space;
using mesh::Group;
using schedule::Lane;

/// One row: a link that a run may have.
struct LinkRow {
  Link link;
  bool always = false;  ///< with one rank, too
};
constexpr LinkRow rows[] = {
    {{Group::shard, Lane::gather}, true},
    {{Group::shard, Lane::reduce}, true},
    {{Group::replicate, Lane::reduce}},
    {{Group::dp, Lane::compute}, true},
    {{Group::tensor, Lane::tensor}},
    {{Group::tensor, Lane::reduce}},
    {{Group::tensor, Lane::compute}},
    {{Group::tensor_group, Lane::reduce}},
    {{Group::context, Lane::context}},
    {{Group::expert, Lane::expert}},
    {{Group::sequence, Lane::expert}},
    {{Group::expert_shard, Lane::gather}, true},
    {{Group::expert_shard, Lane::reduce}, true},
    {{Group::fold, Lane::gather}},
    {{Group::fold, Lane::reduce}},
    {{Group::shard_group, Lane::gather}},
    {{Group::pipeline, Lane::compute}},
    {{Group::tied, Lane::reduce}},
    {{Group::pipeline, Lane::send}},
    {{Group::pipeline, Lane::receive}},
    {{Group::replicate, Lane::reduce, Space::host}},
    {{Group::tensor, Lane::reduce, Space::host}},
    {{Group::tensor_group, Lane::reduce, Space::host}},
    {{Group::tied, Lane::reduce, Space::host}},
};

}  // namespace

int LinkOptions::ranks(Group group) const {
  if (group == Group::shard_group) return shard_group;
  if (group == Group::tensor_group) return tensor_group;
  if (group == Group::tied) return tied ? 2 : 1;
  if (group == Group::expert) return mesh.expert;
  if (group == Group::expert_shard) return mesh.size(mesh::fold) / mesh.expert;
  if (group == Group::sequence && !sums_loads) return 1;
  if (group == Group::fold && !matrices) return 1;
  return mesh.size(mesh::row_of(group).axes);
}

std::vector<Link> links_of(const LinkOptions& options) {
  std::vector<Link> links;
  for (const auto& [link, always] : rows) {
    if (!always && options.ranks(link.group) == 1) continue;
    if (link.group == Group::expert_shard && !options.expert_blocks) continue;  // experts are as all else
    if (link.space == Space::host && !options.gradients_on_host) continue;
    links.push_back(link);
  }
  return links;
}

comm::Collectives& Links::at(const Link& link) const {
  comm::Collectives* found = find(link);
  if (found == nullptr && link.space == Space::host) found = find({link.group, link.lane});
  invariant(found != nullptr,
            fmt::format("no collectives over {} on the {} lane", mesh::to_text(link.group), to_text(link.lane)));
  return *found;
}

}  // namespace trireme::executor
