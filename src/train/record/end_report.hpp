// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "trireme/config/run_config.hpp"

namespace trireme::train {

/// Writes run.output/report.html, as `trireme report` does (metrics.report). What fails is a warning: the run is done.
/// By one rank.
void write_end_report(const config::RunConfig& config);

}  // namespace trireme::train
