// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "trireme/config/run_config.hpp"

namespace trireme::train {

/// Checks the whole run file on one rank, so that a mistake is reported once. Returns the
/// effective run file. node_ranks: of the ranks, those that share this rank's node.
[[nodiscard]] std::string preflight(config::RunConfig config, int ranks, int node_ranks);

}  // namespace trireme::train
