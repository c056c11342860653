// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace trireme::tokenizer::hf {

/// A character and the bytes that it takes.
struct CodePoint {
  char32_t value = 0;
  std::uint32_t bytes = 1;
};

/// The character that begins at byte `at` of valid UTF-8.
[[nodiscard]] CodePoint code_point_at(std::string_view text, std::size_t at);
/// The character that ends before byte `end` > 0 of valid UTF-8.
[[nodiscard]] CodePoint code_point_before(std::string_view text, std::size_t end);
void append_utf8(std::string& text, char32_t value);
[[nodiscard]] std::string utf8(char32_t value);

/// `text` if it is valid UTF-8; else `storage` with U+FFFD for every maximal ill-formed subsequence (Unicode 15,
/// section 3.9), as Python's errors="replace" and Rust's from_utf8_lossy.
[[nodiscard]] std::string_view valid_utf8(std::string_view text, std::string& storage);

/// Properties of a character according to the `tokenizers` package: White_Space, general category N, \w of Rust's
/// regular expressions, punctuation (category P and ASCII's symbols).
[[nodiscard]] bool is_white_space(char32_t value);
[[nodiscard]] bool is_numeric(char32_t value);
[[nodiscard]] bool is_word(char32_t value);
[[nodiscard]] bool is_punctuation(char32_t value);

enum class NormalForm : std::uint8_t { nfc, nfd, nfkc, nfkd };
/// Unicode normalization form of valid UTF-8, by the tables of the `tokenizers` package.
[[nodiscard]] std::string normal_form(std::string_view text, NormalForm form);
/// Full lower-case mapping, character by character.
[[nodiscard]] std::string lower_case(std::string_view text);

/// The printable character that GPT-2's byte-level vocabularies write for a byte.
[[nodiscard]] char32_t byte_character(unsigned char byte);
/// Its inverse: the byte, or -1 if `value` represents none.
[[nodiscard]] int byte_of_character(char32_t value);

}  // namespace trireme::tokenizer::hf
