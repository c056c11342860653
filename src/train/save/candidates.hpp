// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "trireme/config/run_config.hpp"

namespace trireme::train {

/// The checkpoints that a start may resume from, a line each and the best first; "" where the run starts over, as it
/// does with run.overwrite unless what is there is an unfinished run of this very run file. Removes what an interrupted
/// save left, where this run saves. One rank looks.
[[nodiscard]] std::string resume_candidates(const config::RunConfig& config);

}  // namespace trireme::train
