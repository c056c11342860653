// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "huggingface/json_object.hpp"
#include "trireme/huggingface/huggingface.hpp"

namespace trireme::huggingface {

/// Token ids at which generation stops: a number or a list. A negative number is none, as in some exports.
[[nodiscard]] std::vector<std::int64_t> token_ids(const JsonObject& config, const std::string& key);

/// Adds the end tokens of generation_config.json to those of config.json; sets
/// `read.kept_generation` to its text. file: its name in messages. Throws
/// CheckpointError when it is no table, or holds no token ids where required.
void add_generation_config(std::string_view text, const std::string& file, HfConfig& read);

/// Puts bos_token_id and eos_token_id of `options` into the tables of both files: as given where they were, with the
/// tokens that `options` adds. refuses_null: the class takes no null as bos_token_id.
void write_special_tokens(nlohmann::ordered_json& config, const HfWriteOptions& options, bool refuses_null);
void write_generation_tokens(nlohmann::ordered_json& generation, const HfWriteOptions& options);

/// The table of `kept`; empty for "". Throws CheckpointError.
[[nodiscard]] nlohmann::json kept_table(const std::string& kept);

}  // namespace trireme::huggingface
