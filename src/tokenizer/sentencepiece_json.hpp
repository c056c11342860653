// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

namespace trireme::tokenizer {

/// First and last tokens of a document.
struct Marks {
  std::optional<std::int32_t> bos;
  bool adds_bos = false;  ///< `bos` begins every document
  std::int32_t end = 0;
  bool splits_specials = false;  ///< special tokens in text are text
};

/// The files that transformers loads a SentencePiece model from, `model` itself among them: tokenizer.json with the
/// same pieces, normalization and ids. Models of words or characters have no tokenizer.json: a warning. name:
/// the model, for messages.
[[nodiscard]] std::map<std::string, std::string> sentencepiece_export_files(const std::string& name,
                                                                            const std::string& model,
                                                                            const Marks& marks);

}  // namespace trireme::tokenizer
