// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <string>

namespace trireme::tokenizer {

/// The files that transformers loads a SentencePiece model from, `model` itself among them: tokenizer.json with the
/// same pieces, normalization and ids. Models of words or characters have no tokenizer.json: a warning. name:
/// the model, for messages.
[[nodiscard]] std::map<std::string, std::string> sentencepiece_export_files(const std::string& name,
                                                                            const std::string& model);

}  // namespace trireme::tokenizer
