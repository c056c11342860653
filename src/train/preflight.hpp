// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "trireme/config/run_config.hpp"

namespace trireme::train {

/// Checks the whole run file on one rank, so that a mistake is reported once. Returns the
/// effective run file. node_ranks: of the ranks, those that share this rank's node. Where the run reads text,
/// `check_data` follows once it is tokenized.
[[nodiscard]] std::string preflight(config::RunConfig config, int ranks, int node_ranks);

/// Opens the token files of the run and compares them with model and tokenizer. Throws as data::TokenFile and
/// data::Dataset, ConfigError.
void check_data(const config::RunConfig& config);

}  // namespace trireme::train
