// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "trireme/config/load.hpp"
#include "trireme/planner/time/machine.hpp"

namespace trireme::planner {

/// Every mesh, microbatch and sync policy, without recompute and offload. Some may be ruled out by resolve() or a rule.
[[nodiscard]] std::vector<config::RunConfig> candidate_groups(const config::RunConfig& config, int ranks,
                                                              const Machine& machine);

/// Settings that save memory at the cost of time. Higher levels do more of both.
struct Savings {
  int recompute = 0;  ///< none, selective, every second block, every block
  int offload = 0;    ///< none, optimizer, parameters
  int activations = 0;
  [[nodiscard]] bool at_least(const Savings& other) const {
    return recompute >= other.recompute && offload >= other.offload && activations >= other.activations;
  }
};
/// All, each after those that it is at least of.
[[nodiscard]] const std::vector<Savings>& all_savings();
/// Savings tried with a group of candidates: in a pipeline only recompute.
[[nodiscard]] const std::vector<Savings>& savings_of(const config::RunConfig& group);
[[nodiscard]] config::RunConfig with(config::RunConfig config, const Savings& savings);

}  // namespace trireme::planner
