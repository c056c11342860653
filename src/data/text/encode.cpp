// SPDX-License-Identifier: Apache-2.0
#include "data/text/encode.hpp"

#include "data/text/conversation.hpp"
#include "data/text/json_line.hpp"
#include "trireme/base/error.hpp"
#include "trireme/base/text.hpp"

namespace trireme::data::text {

EncodedPart encode(const tokenizer::Tokenizer& tokenizer, const Part& part) {
  if (part.text.empty() && part.begins && part.ends) return {.ids = {}, .ends = false, .empty = true};
  EncodedPart encoded{.ids = {}, .text_bytes = static_cast<std::int64_t>(part.text.size()), .ends = part.ends};
  bool ended = false;
  if (part.begins) encoded.ids = tokenizer.document_begin();
  if (!part.text.empty()) {
    const auto ids = part.begins ? tokenizer.encode(part.text) : tokenizer.encode_continuation(part.text);
    encoded.ids.insert(encoded.ids.end(), ids.begin(), ids.end());
    ended = ends_document(tokenizer, ids);
  }
  if (part.ends && !ended) encoded.ids.push_back(tokenizer.document_end());
  return encoded;
}

bool ends_document(const tokenizer::Tokenizer& tokenizer, std::span<const std::int32_t> ids) {
  const auto is_blank = [&](std::int32_t id) {
    const std::string text = tokenizer.decode(std::span(&id, 1));
    return id != tokenizer.document_end() && !text.empty() && trim(text).empty();
  };
  while (!ids.empty() && is_blank(ids.back())) ids = ids.first(ids.size() - 1);
  return !ids.empty() && ids.back() == tokenizer.document_end();
}

namespace {

EncodedPart encode_line(const tokenizer::Tokenizer& tokenizer, const Lines& lines, std::string_view line,
                        std::int64_t number) {
  if (lines.response.empty() && lines.chat.empty())
    return encode(tokenizer, Part{.text = text_of_line(line, lines.field, lines.name, number)});
  const std::vector<Piece> pieces = pieces_of_line(line, lines, number);
  return pieces.empty() ? EncodedPart{.ids = {}, .ends = false, .empty = true} : encode(tokenizer, lines, pieces);
}

}  // namespace

std::vector<EncodedPart> encode(const tokenizer::Tokenizer& tokenizer, const Lines& lines) {
  std::vector<EncodedPart> all;
  std::string_view rest = lines.text;
  for (std::int64_t number = lines.first_number; !rest.empty(); ++number) {
    const std::size_t end = std::min(rest.find('\n'), rest.size());
    const std::string_view line = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    if (trim(line).empty()) continue;
    try {
      all.push_back(encode_line(tokenizer, lines, line, number));
    } catch (const DataError& error) {
      all.push_back({.ids = {}, .ends = false, .bad = error.what()});
    }
  }
  return all;
}

}  // namespace trireme::data::text
