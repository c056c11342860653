// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trireme/tokenizer/tokenizer.hpp"

namespace trireme::data::text {

/// A document, or a part of one that may be encoded by itself.
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
  std::string name;               ///< of the file
  std::int64_t first_number = 1;  ///< of the first line
};

/// Its tokens, with those that begin and end a document.
struct EncodedPart {
  std::vector<std::int32_t> ids;
  std::vector<std::uint8_t> counts = {};  ///< of documents with responses: 1 for the ids that count as targets, else 0
  std::int64_t text_bytes = 0;
  bool ends = true;
  bool empty = false;  ///< a line without text, which is not a document
};

[[nodiscard]] EncodedPart encode(const tokenizer::Tokenizer& tokenizer, const Part& part);
/// One for each line that is not blank. Throws DataError as text_of_line.
[[nodiscard]] std::vector<EncodedPart> encode(const tokenizer::Tokenizer& tokenizer, const Lines& lines);

}  // namespace trireme::data::text
