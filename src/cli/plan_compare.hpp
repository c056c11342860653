// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "cli/commands.hpp"

namespace trireme::cli {

/// Prints what the run in `directory` measured beside what is predicted for its run file; times only on a machine.
/// Throws ConfigError where it holds no run.
void plan_compare(const std::string& directory, const std::string& machine, const CompleteModel& complete);

}  // namespace trireme::cli
