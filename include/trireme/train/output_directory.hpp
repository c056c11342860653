// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "trireme/config/run_config.hpp"

namespace trireme::train {

/// Refuses a run.output that holds an earlier run, or an export that would replace foreign files. Writes nothing; one
/// rank looks. Throws CheckpointError.
void check_output_directory(const config::RunConfig& config);

/// Creates run.output. Throws WriteError.
void create_output_directory(const config::RunConfig& config);

/// Creates run.output with the effective run file in it, after the same check. Throws WriteError as well.
void prepare_output_directory(const config::RunConfig& config);

}  // namespace trireme::train
