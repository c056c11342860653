// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "trireme/schedule/access.hpp"

namespace trireme::schedule {

/// Why one op waits for another.
enum class Reason { read_after_write, write_after_read, write_after_write, lane_order };

/// Op `to` of a step starts after op `from` of the step `distance` steps before it (0: the same step; 1: the one
/// before) has ended.
struct Need {
  int from = 0;
  int to = 0;
  int distance = 0;
  Reason reason = Reason::lane_order;
  friend bool operator==(const Need&, const Need&) = default;
};

/// The one dependency rule: read/write hazards over every resource, slot reuse included, and the order of each lane,
/// over the cyclic schedule. The executor waits by it, the planner times by it, `verify` checks it.
[[nodiscard]] std::vector<Need> needs(const Schedule& schedule, const model::Model& model);

}  // namespace trireme::schedule
