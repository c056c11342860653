// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "trireme/config/run_config.hpp"

namespace trireme::config {

/// The names of the validation sets, in order; one empty name if they have none, no name without data.validation.
[[nodiscard]] std::vector<std::string> validation_sets(const Data& data);

/// The files of one validation set.
[[nodiscard]] std::vector<TokenSource> validation_files(const Data& data, const std::string& set);

}  // namespace trireme::config
