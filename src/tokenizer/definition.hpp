// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <string_view>

#include "tokenizer/hf/added_tokens.hpp"

namespace trireme::tokenizer {

/// Tokenizer::definition of a tokenizer that is determined by `contents` and other files. begin, end: tokens of a
/// document.
[[nodiscard]] std::string definition_of(std::string_view contents, std::span<const std::int32_t> begin,
                                        std::int32_t end);

/// Normalizer, pre-tokenizer, model and added tokens of a parsed tokenizer.json as text: equal for files that versions
/// of the `tokenizers` package write differently, with merges as texts or pairs, with keys that are off or without.
/// added: with the tokens of the other files in its folder.
[[nodiscard]] std::string canonical_text(const nlohmann::json& file, const std::vector<hf::AddedToken>& added);

}  // namespace trireme::tokenizer
