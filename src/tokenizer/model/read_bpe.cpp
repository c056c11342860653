// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "tokenizer/model/bpe.hpp"
#include "tokenizer/text/utf8.hpp"

namespace trireme::tokenizer::hf {
namespace {

/// The bytes of a token of a byte-level vocabulary; false if it has a character that represents no byte.
bool to_bytes(std::string_view token, std::string& bytes) {
  bytes.clear();
  for (std::size_t at = 0; at < token.size();) {
    const CodePoint point = code_point_at(token, at);
    const int byte = byte_of_character(point.value);
    if (byte < 0) return false;
    bytes += static_cast<char>(byte);
    at += point.bytes;
  }
  return true;
}

/// "a b", or ["a", "b"].
std::pair<std::string, std::string> pair_of(const Node& node) {
  const auto& value = node.value();
  if (value.is_array() && value.size() == 2 && value[0].is_string() && value[1].is_string())
    return {value[0].get<std::string>(), value[1].get<std::string>()};
  if (value.is_string()) {
    const auto& text = value.get_ref<const std::string&>();
    const std::size_t blank = text.find(' ');
    if (blank != std::string::npos && text.find(' ', blank + 1) == std::string::npos)
      return {text.substr(0, blank), text.substr(blank + 1)};
  }
  node.refuse("is not a pair of tokens");
}

}  // namespace

bool Bpe::has_affixes(const Node& model) {
  return !model.text("continuing_subword_prefix", "").empty() || !model.text("end_of_word_suffix", "").empty();
}

Bpe::Bpe(const Node& model, const Vocabulary& vocabulary, bool bytes)
    : bytes_(bytes),
      fuse_unknown_(model.flag("fuse_unk", false)),
      byte_fallback_(model.flag("byte_fallback", false)),
      whole_first_(model.flag("ignore_merges", false)),
      prefix_(model.text("continuing_subword_prefix", "")),
      suffix_(model.text("end_of_word_suffix", "")) {
  const Node dropout = model["dropout"];
  if (!dropout.is_null() && (!dropout.value().is_number() || dropout.value().get<double>() != 0))
    dropout.refuse("is not supported: the same text would have other tokens each time");
  if (const std::string unknown = model.text("unk_token", ""); !unknown.empty()) {
    unknown_ = id_of(vocabulary, unknown);
    if (unknown_ < 0) model["unk_token"].refuse(fmt::format("\"{}\" is not in the vocabulary", unknown));
  }
  read_merges(model["merges"], vocabulary);
  std::string piece;
  for (const auto& [text, id] : vocabulary) {
    if (bytes_) {
      if (!to_bytes(text, piece)) continue;  // no text has such a piece
    } else {
      piece = text;
      if (!text.empty() && code_point_at(text, 0).bytes == text.size())
        characters_.insert(static_cast<std::uint64_t>(code_point_at(text, 0).value), id);
    }
    pieces_.emplace(piece, id);
  }
  if (bytes_) {
    for (std::size_t byte = 0; byte < 256; ++byte)
      byte_ids_[byte] = id_of(pieces_, std::string(1, static_cast<char>(byte)));
  } else {
    byte_ids_ = byte_tokens(vocabulary);
  }
  all_byte_tokens_ = std::ranges::none_of(byte_ids_, [](std::int32_t id) { return id < 0; });
  if (!bytes_) read_boundaries(vocabulary);
}

void Bpe::read_merges(const Node& node, const Vocabulary& vocabulary) {
  const auto& list = node.value();
  if (!list.is_array()) node.refuse("is not an array");
  merges_ = FlatMap<Merge>(list.size());
  std::uint32_t rank = 0;
  for (const Node& item : node.items()) {
    const auto [left, right] = pair_of(item);
    const std::int32_t left_id = id_of(vocabulary, left);
    const std::int32_t right_id = id_of(vocabulary, right);
    const bool continues = !prefix_.empty() && right.starts_with(prefix_);
    const std::int32_t id = id_of(vocabulary, left + (continues ? right.substr(prefix_.size()) : right));
    if (left_id < 0 || right_id < 0 || id < 0)
      item.refuse(fmt::format("merges \"{}\" and \"{}\", which are not all in the vocabulary, or not what they make",
                              left, right));
    const auto key = std::uint64_t{static_cast<std::uint32_t>(left_id)} << 32 | static_cast<std::uint32_t>(right_id);
    merges_.insert(key, {}) = {.rank = rank++, .id = id};  // of a pair given twice the last counts
  }
}

/// See cuts_. U+2581 itself has to be a token, so that no run of unknown characters crosses it.
void Bpe::read_boundaries(const Vocabulary& vocabulary) {
  cuts_ = !whole_first_ && prefix_.empty() && suffix_.empty() && vocabulary.contains(space_piece);
  for (const auto& [text, id] : vocabulary) {
    for (std::size_t at = text.find(space_piece, 1); at != std::string::npos; at = text.find(space_piece, at + 1)) {
      const bool after_another =
          at >= space_piece.size() && text.substr(at - space_piece.size()).starts_with(space_piece);
      joined_[after_another ? 0xFF : static_cast<unsigned char>(text[at - 1])] = true;
    }
    // A merge with the token of a byte would hide the byte at the boundary.
    if (text.size() > 6 && text.find("<0x") != std::string::npos && text.find(space_piece) != std::string::npos)
      cuts_ = false;
  }
}

}  // namespace trireme::tokenizer::hf
