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
  bool begins_with_mark = false;  ///< text begins with the mark of a message
  std::int64_t given_bytes = 0;   ///< of the text that the file has; the rest is the format's
};

/// The pieces of a JSON object on one line: the texts at `lines.field` and `lines.response`, or the messages at
/// `lines.field` in the format `lines.chat`. Throws DataError as text_of_line, and for a mistake in a message: another
/// role than system, user and assistant, or a key that the format does not write, such as tool_calls, unless it is null
/// or empty. "weight": 0 and "train": false of an assistant's message exclude it from the loss.
[[nodiscard]] std::vector<Piece> pieces_of_line(std::string_view line, const Lines& lines, std::int64_t number);

/// The tokens of the pieces' whole text, each marked by the piece that its last byte belongs to: the tokens that differ
/// from those of the text before a response belong to the response. The begin of a document does not count; its end
/// counts if the last piece does, and is omitted if the text, apart from trailing white space, ends with that token. In
/// time linear in the text if `lines.marks_divide`.
[[nodiscard]] EncodedPart encode(const tokenizer::Tokenizer& tokenizer, const Lines& lines,
                                 std::span<const Piece> pieces);

/// Whether the ids of text from a message's mark on do not depend on the text before the mark. Throws ConfigError when
/// `chat` is not a format, or when its marks are no tokens of `tokenizer`.
[[nodiscard]] bool check_chat(const std::string& chat, const tokenizer::Tokenizer& tokenizer);

/// A message in the format `chat`; the beginning of an assistant's reply, and the mark behind one. Throws ConfigError
/// when `chat` is not a format.
[[nodiscard]] std::string message_text(const std::string& chat, std::string_view role, std::string_view content);
[[nodiscard]] std::string reply_begin(const std::string& chat);
[[nodiscard]] std::string reply_end(const std::string& chat);

/// The format whose marks a chat template of transformers has; "" where it has those of another one.
[[nodiscard]] std::string chat_of_template(std::string_view jinja);

}  // namespace trireme::data::text
