// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <compare>
#include <map>

#include "trireme/comm/collectives.hpp"
#include "trireme/comm/groups.hpp"
#include "trireme/device/memory.hpp"
#include "trireme/schedule/op.hpp"

namespace trireme::executor {

/// Names the collectives of one group, on the lane that calls them, for tensors in one memory. Norms and losses are
/// summed on the compute lane.
struct Link {
  comm::Group group;
  schedule::Lane lane;
  device::Space space = device::Space::device;
  friend auto operator<=>(const Link&, const Link&) = default;
};

/// The collectives that the ops of a schedule use, each on a communicator of its own.
class Links {
 public:
  /// collectives: outlive the links.
  void add(const Link& link, comm::Collectives& collectives) { table_.insert_or_assign(link, &collectives); }

  /// Those of a link; null where the run has none.
  [[nodiscard]] comm::Collectives* find(const Link& link) const {
    const auto found = table_.find(link);
    return found == table_.end() ? nullptr : found->second;
  }
  /// Those of a link. Where nothing is apart in the host's memory (on CPUs), the same for both. Throws BugError where
  /// there are none.
  [[nodiscard]] comm::Collectives& at(const Link& link) const;

 private:
  std::map<Link, comm::Collectives*> table_;
};

}  // namespace trireme::executor
