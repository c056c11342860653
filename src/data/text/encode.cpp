// SPDX-License-Identifier: Apache-2.0
#include "data/text/encode.hpp"

#include "data/text/conversation.hpp"
#include "data/text/json_line.hpp"
#include "trireme/base/text.hpp"

namespace trireme::data::text {

EncodedPart encode(const tokenizer::Tokenizer& tokenizer, const Part& part) {
  EncodedPart encoded{.ids = {}, .text_bytes = static_cast<std::int64_t>(part.text.size()), .ends = part.ends};
  if (part.begins) encoded.ids = tokenizer.document_begin();
  if (!part.text.empty()) {
    const auto ids = part.begins ? tokenizer.encode(part.text) : tokenizer.encode_continuation(part.text);
    encoded.ids.insert(encoded.ids.end(), ids.begin(), ids.end());
  }
  if (part.ends) encoded.ids.push_back(tokenizer.document_end());
  return encoded;
}

std::vector<EncodedPart> encode(const tokenizer::Tokenizer& tokenizer, const Lines& lines) {
  std::vector<EncodedPart> all;
  std::string_view rest = lines.text;
  for (std::int64_t number = lines.first_number; !rest.empty(); ++number) {
    const std::size_t end = std::min(rest.find('\n'), rest.size());
    const std::string_view line = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    if (trim(line).empty()) continue;
    if (!lines.response.empty() || !lines.chat.empty()) {
      const std::vector<Piece> pieces = pieces_of_line(line, lines, number);
      all.push_back(pieces.empty() ? EncodedPart{.ids = {}, .text_bytes = 0, .ends = false, .empty = true}
                                   : encode(tokenizer, pieces));
      continue;
    }
    std::string text = text_of_line(line, lines.field, lines.name, number);
    if (text.empty()) {
      all.push_back({.ids = {}, .text_bytes = 0, .ends = false, .empty = true});
    } else {
      all.push_back(encode(tokenizer, Part{.text = std::move(text)}));
    }
  }
  return all;
}

}  // namespace trireme::data::text
