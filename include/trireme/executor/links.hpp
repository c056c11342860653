// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <compare>
#include <map>
#include <vector>

#include "trireme/comm/collectives.hpp"
#include "trireme/device/memory.hpp"
#include "trireme/mesh/groups.hpp"
#include "trireme/schedule/op.hpp"

namespace trireme::executor {

/// Identifies the collectives of one group, on the lane that calls them, for tensors in one memory. Norms and losses
/// are summed on the compute lane.
struct Link {
  mesh::Group group;
  schedule::Lane lane;
  device::Space space = device::Space::device;
  friend auto operator<=>(const Link&, const Link&) = default;
};

/// Settings that determine the links of a run.
struct LinkOptions {
  mesh::Mesh mesh;
  int shard_group = 1;             ///< ranks that keep a copy of the parameters between them
  int tensor_group = 1;            ///< ranks that share key and value heads
  bool tied = false;               ///< the first and the last pipeline rank hold the same embedding
  bool expert_blocks = false;      ///< experts are separate parameter blocks
  bool sums_loads = false;         ///< routers read loads of sequences that several ranks divide
  bool matrices = false;           ///< ranks send matrices to their owners
  bool gradients_on_host = false;  ///< of tensors on a GPU: those of the host are reduced there
  [[nodiscard]] int ranks(mesh::Group group) const;
};

/// The links of a run, in the order in which all ranks open them. A group of one rank has none, except those that
/// every run has: shard and dp.
[[nodiscard]] std::vector<Link> links_of(const LinkOptions& options);

/// The collectives that the ops of a schedule use, each on a separate communicator.
class Links {
 public:
  /// collectives: outlive the links.
  void add(const Link& link, comm::Collectives& collectives) { table_.insert_or_assign(link, &collectives); }

  /// The collectives of a link; null if the run has none.
  [[nodiscard]] comm::Collectives* find(const Link& link) const {
    const auto found = table_.find(link);
    return found == table_.end() ? nullptr : found->second;
  }
  /// The collectives of a link. Without separate ones for host memory (on CPUs), those of the device. Throws BugError
  /// if there are none.
  [[nodiscard]] comm::Collectives& at(const Link& link) const;

 private:
  std::map<Link, comm::Collectives*> table_;
};

}  // namespace trireme::executor
