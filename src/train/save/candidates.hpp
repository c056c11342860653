// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "trireme/config/run_config.hpp"

namespace trireme::train {

/// The checkpoints that a start may resume from, a line each and the best first; "" if the run starts over, as with
/// run.overwrite unless the directory holds an unfinished run of the same run file. Removes leftovers of an interrupted
/// save if this run saves. On one rank.
[[nodiscard]] std::string resume_candidates(const config::RunConfig& config);

}  // namespace trireme::train
