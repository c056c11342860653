// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>

#include "trireme/config/load.hpp"
#include "trireme/planner/time/machine.hpp"

namespace trireme::cli {

/// Prints `plan` for a run with mesh.pipeline > 1. `rank`: the pipeline rank whose schedule, memory or traffic is
/// shown; absent: the one with the highest total memory. Throws ConfigError for an unsupported `show`.
void plan_pipeline(const config::RunConfig& config, int ranks, const std::string& show, std::optional<int> rank,
                   const planner::Machine& machine);

}  // namespace trireme::cli
