// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace trireme::tokenizer::hf {

// The `tokenizers` package (0.23) normalizes by the tables of Unicode 9 and has the punctuation of Unicode 8; utf8proc
// is newer. Tokens have to equal the package's, so later characters are treated as there. Found by comparing every
// character.

/// Whether decomposition, composition or reordering of this character is newer than those tables: the package leaves it
/// unchanged and does not move it.
[[nodiscard]] bool is_normalized_later(char32_t value);
/// Whether this is punctuation for utf8proc and not there.
[[nodiscard]] bool is_punctuation_later(char32_t value);

}  // namespace trireme::tokenizer::hf
