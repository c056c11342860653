// SPDX-License-Identifier: Apache-2.0
#include "trireme/executor/links.hpp"

#include <fmt/format.h>

#include "trireme/base/error.hpp"

namespace trireme::executor {

comm::Collectives& Links::at(const Link& link) const {
  comm::Collectives* found = find(link);
  if (found == nullptr && link.space == device::Space::host) found = find({link.group, link.lane});
  invariant(found != nullptr,
            fmt::format("no collectives over {} on the {} lane", comm::to_text(link.group), to_text(link.lane)));
  return *found;
}

}  // namespace trireme::executor
