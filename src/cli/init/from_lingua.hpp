// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "cli/init/from_torchtitan.hpp"

namespace trireme::cli {

/// Translates a configuration of Meta Lingua (`TrainArgs` of apps/main). Arguments as `translate_torchtitan`. Throws
/// ConfigError.
[[nodiscard]] TranslatedRun translate_lingua(const nlohmann::json& job, const std::string& file, int ranks,
                                             bool with_model);

}  // namespace trireme::cli
