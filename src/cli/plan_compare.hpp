// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "cli/commands.hpp"

namespace trireme::cli {

/// Prints the measurements of the run in `directory` and the predictions for its run file; times only with a machine.
/// Throws ConfigError if the directory holds no run.
void plan_compare(const std::string& directory, const std::string& machine, const CompleteModel& complete);

}  // namespace trireme::cli
