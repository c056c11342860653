// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "trireme/base/error.hpp"
#include "trireme/model/multimodal.hpp"

namespace trireme::huggingface {

/// The text part of a multimodal config.json.
struct TextPart {
  nlohmann::json config;            ///< as the family's class would write it, tie_word_embeddings included
  std::string where;                ///< prefix of its keys in messages: "text_config."
  std::vector<std::string> unread;  ///< keys of the outer table, with values, that concern neither pictures nor sound
  bool tied_unsaid = false;         ///< no table has tie_word_embeddings
};

/// Takes text_config out of `outer`, or its keys if they are in the outer table itself. Sets absent keys to the
/// defaults of the class in transformers. Collects as mistakes: a text part of an unsupported type, sizes in which the
/// two tables differ, quantized weights.
[[nodiscard]] TextPart text_part(const nlohmann::json& outer, const model::Multimodal& multimodal, Mistakes& mistakes);

}  // namespace trireme::huggingface
