// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "data/text/encode.hpp"

/// Documents whose responses alone count in the loss.
namespace trireme::data::text {

/// Text that counts, or does not.
struct Piece {
  std::string text;
  bool counts = false;
};

/// The pieces of a JSON object on one line: the texts at `lines.field` and `lines.response`, or the messages at
/// `lines.field` in the format `lines.chat`. Throws DataError as text_of_line, and naming what is wrong in a message.
[[nodiscard]] std::vector<Piece> pieces_of_line(std::string_view line, const Lines& lines, std::int64_t number);

/// The tokens of the pieces' whole text, each marked by the piece that its last byte belongs to: the tokens that differ
/// from those of the text before a response belong to the response. What begins a document does not count; its end
/// counts if the last piece does.
[[nodiscard]] EncodedPart encode(const tokenizer::Tokenizer& tokenizer, std::span<const Piece> pieces);

/// Throws ConfigError when `chat` is not a format, or when its marks are no tokens of `tokenizer`.
void check_chat(const std::string& chat, const tokenizer::Tokenizer& tokenizer);

}  // namespace trireme::data::text
