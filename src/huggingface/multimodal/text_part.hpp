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
  std::string where;                ///< what precedes its keys in messages: "text_config."
  std::vector<std::string> unread;  ///< keys of the outer table, with values, that concern neither pictures nor sound
  bool tied_unsaid = false;         ///< no table has tie_word_embeddings
};

/// Takes text_config out of `outer`, or its keys where they stand in the outer table itself. Keys that are absent are
/// filled in as the class in transformers does. Collects as mistakes: a text part of a type that is not read, sizes in
/// which the two tables differ, quantized weights.
[[nodiscard]] TextPart text_part(const nlohmann::json& outer, const model::Multimodal& multimodal, Mistakes& mistakes);

}  // namespace trireme::huggingface
