// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>
#include <vector>

#include "trireme/model/chunks.hpp"
#include "trireme/schedule/op.hpp"

namespace trireme::schedule {

/// Runs the lists of two steps as if every op blocked and nothing was buffered. If that does not end, returns every
/// blocked rank with its op and its peers.
[[nodiscard]] std::vector<std::string> merge(std::span<const Schedule> lists,
                                             std::span<const model::PipelinePart> parts);

}  // namespace trireme::schedule
