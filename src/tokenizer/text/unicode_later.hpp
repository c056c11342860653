// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace trireme::tokenizer::hf {

// The `tokenizers` package (0.23) normalizes by the tables of Unicode 9 and knows the punctuation of Unicode 8;
// utf8proc is newer. Tokens have to be the package's, so what came later counts as it does there. Found by comparing
// every character.

/// Whether decomposition, composition or reordering of this character is not known there: it stays as it is, and where
/// it is.
[[nodiscard]] bool is_normalized_later(char32_t value);
/// Whether this is punctuation for utf8proc and not there.
[[nodiscard]] bool is_punctuation_later(char32_t value);

}  // namespace trireme::tokenizer::hf
