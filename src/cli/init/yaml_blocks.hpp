// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace trireme::cli {

/// YAML as configuration files of trainers have it: mappings and lists by indentation, plain and quoted scalars, empty
/// [] and {}, comments. Numbers as OmegaConf reads them (60_000, 3e-4). Throws ConfigError, with the line, at anything
/// else: anchors, tags, text of several lines, flow collections, tabs, a repeated key.
[[nodiscard]] nlohmann::json parse_yaml_blocks(std::string_view text, const std::string& file);

}  // namespace trireme::cli
