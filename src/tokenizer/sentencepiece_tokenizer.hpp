// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>

#include "trireme/tokenizer/tokenizer.hpp"

namespace trireme::tokenizer {

/// A SentencePiece model (Kudo and Richardson 2018) as a tokenizer. Throws DataError as `make_tokenizer` does.
[[nodiscard]] std::unique_ptr<Tokenizer> make_sentencepiece_tokenizer(const std::string& model_path);

}  // namespace trireme::tokenizer
