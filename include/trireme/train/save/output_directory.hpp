// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "trireme/config/run_config.hpp"

namespace trireme::train {

/// Refuses a run.output that holds an earlier run, or an export that would replace foreign files or `model.from`.
/// Writes nothing; one rank looks. Throws CheckpointError.
void check_output_directory(const config::RunConfig& config);

/// Creates run.output. Throws WriteError.
void create_output_directory(const config::RunConfig& config);

/// Creates run.output and checkpoint.directory after the same check. Throws WriteError as well.
void prepare_output_directory(const config::RunConfig& config);

/// Writes the effective run file of a run that begins: run.toml, or run.effective.toml where run.toml is the file that
/// the run was given (`given`), or one that no run wrote. Throws WriteError.
void write_run_file(const config::RunConfig& config, const std::string& given);

}  // namespace trireme::train
