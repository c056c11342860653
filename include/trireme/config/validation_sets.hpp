// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "trireme/config/run_config.hpp"

namespace trireme::config {

/// The names of the sets of some files, in order; one empty name if they have none.
[[nodiscard]] std::vector<std::string> set_names(const std::vector<TokenSource>& files);
/// The files of one set.
[[nodiscard]] std::vector<TokenSource> files_of_set(const std::vector<TokenSource>& files, const std::string& set);

/// The names of the validation sets, in order; one empty name if they have none, no name without data.validation.
[[nodiscard]] std::vector<std::string> validation_sets(const Data& data);

/// The files of one validation set.
[[nodiscard]] std::vector<TokenSource> validation_files(const Data& data, const std::string& set);

}  // namespace trireme::config
