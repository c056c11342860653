// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>
#include <vector>

#include "trireme/model/chunks.hpp"
#include "trireme/schedule/op.hpp"

namespace trireme::schedule {

/// Runs the lists of two steps as if every op blocked and nothing was buffered. Where that does not end: every rank
/// that stands, its op, and whom it waits for.
[[nodiscard]] std::vector<std::string> merge(std::span<const Schedule> lists,
                                             std::span<const model::PipelinePart> parts);

}  // namespace trireme::schedule
