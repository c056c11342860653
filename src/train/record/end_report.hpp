// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "trireme/config/run_config.hpp"

namespace trireme::train {

/// Writes run.output/report.html, as `trireme report` does (metrics.report), and returns a line for the console. A
/// failure is a warning, and the line empty: the run is done. By one rank.
[[nodiscard]] std::string write_end_report(const config::RunConfig& config);

}  // namespace trireme::train
