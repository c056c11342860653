// SPDX-License-Identifier: Apache-2.0
#include "trireme/mesh/groups.hpp"

#include <algorithm>

#include "trireme/base/error.hpp"

namespace trireme::mesh {

const GroupRow& row_of(Group group) {
  const auto found = std::ranges::find(groups, group, &GroupRow::group);
  invariant(found != groups.end(), "mesh: every group has a row");
  return *found;
}

std::string_view to_text(Group group) { return row_of(group).name; }

}  // namespace trireme::mesh
