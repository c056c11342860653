// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "trireme/planner/replay.hpp"
#include "trireme/schedule/exchange.hpp"

/// Sizes of exchanges between stages: the common source of their traffic and their predicted time.
namespace trireme::planner {

/// Elements of the tensor of an exchange that gathers, scatters, sums or redistributes: all of it, not one rank's part.
/// Not for rows of experts, whose number differs by rank.
[[nodiscard]] std::int64_t exchanged_elements(const schedule::Exchanged& op, const model::Model& model,
                                              const ReplayOptions& replay_options);
/// Ranks of the group of an exchange.
[[nodiscard]] int ranks_of(mesh::Group group, const model::TensorPart& part);

}  // namespace trireme::planner
