// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <set>
#include <span>
#include <string>

#include "trireme/tokenizer/tokenizer.hpp"

namespace trireme::cli {

/// Tokens that end a text in addition to the tokenizer's end of a document: `eos_token_ids` of the model (Llama 3's
/// chats end with <|eot_id|>), and those of `stops` that are special tokens, which are not printed.
[[nodiscard]] std::set<std::int32_t> end_tokens(const tokenizer::Tokenizer& tokenizer,
                                                std::span<const std::int64_t> eos_token_ids,
                                                std::span<const std::string> stops);

}  // namespace trireme::cli
