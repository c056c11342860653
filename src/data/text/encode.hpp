// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "trireme/tokenizer/tokenizer.hpp"

namespace trireme::data::text {

/// A document, or a part of one that can be encoded separately.
struct Part {
  std::string text;
  bool begins = true;
  bool ends = true;
};
/// Whole lines of JSON objects, each with a document at `field`.
struct Lines {
  std::string text;
  std::string field;
  std::string response = {};      ///< not empty: the field of a response to the text at `field`
  std::string chat = {};          ///< not empty: messages are at `field`, to be written in this format
  bool marks_divide = false;      ///< check_chat's
  std::string name;               ///< of the file
  std::int64_t first_number = 1;  ///< of the first line
};

/// Its tokens, with those that begin and end a document.
struct EncodedPart {
  std::vector<std::int32_t> ids;
  std::vector<std::uint8_t> counts = {};  ///< of documents with responses: 1 for the ids that count as targets, else 0
  std::int64_t text_bytes = 0;
  bool ends = true;
  bool empty = false;    ///< a line or file without text, which is not a document
  std::string bad = {};  ///< not empty: why the line cannot be read
};

/// The end of a document is left out where its text, white space after it aside, ends with that token.
[[nodiscard]] EncodedPart encode(const tokenizer::Tokenizer& tokenizer, const Part& part);
/// One for each line that is not blank; of one that text_of_line or pieces_of_line refuse, its message.
[[nodiscard]] std::vector<EncodedPart> encode(const tokenizer::Tokenizer& tokenizer, const Lines& lines);
/// Whether the last of `ids`, tokens of white space after it aside, is the end of a document.
[[nodiscard]] bool ends_document(const tokenizer::Tokenizer& tokenizer, std::span<const std::int32_t> ids);

}  // namespace trireme::data::text
