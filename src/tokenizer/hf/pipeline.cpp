// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/hf/pipeline.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "tokenizer/text/utf8.hpp"
#include "trireme/base/error.hpp"

namespace trireme::tokenizer::hf {
namespace {

constexpr std::int64_t most_ids = std::int64_t{1} << 28;

/// Older files lack the type: a list of pairs is a unigram model's, merges are BPE's.
std::string model_type(const Node& model) {
  if (!model["type"].is_null()) return model.text("type");
  if (!model["merges"].is_null()) return "BPE";
  return model["vocab"].value().is_array() ? "Unigram" : "";
}

Vocabulary read_vocabulary(const Node& model) {
  if (const std::string type = model_type(model); type != "BPE" && type != "Unigram")
    model.refuse_type("BPE and Unigram");
  const Node node = model["vocab"];
  const auto& value = node.value();
  Vocabulary vocabulary;
  if (value.is_array()) {
    std::int32_t id = 0;
    for (const Node& item : node.items()) {
      if (!item.value().is_array() || item.value().empty() || !item.value()[0].is_string())
        item.refuse("is not a token and its score");
      vocabulary[item.value()[0].get<std::string>()] = id++;  // of a token given twice the last counts
    }
    return vocabulary;
  }
  if (!value.is_object()) node.refuse("is not an object of tokens and their ids");
  for (const auto& [text, id] : value.items()) {
    if (!id.is_number_integer() || id.get<std::int64_t>() < 0 || id.get<std::int64_t>() > most_ids)
      node.refuse(fmt::format("has no token id at \"{}\"", text));
    vocabulary.emplace(text, static_cast<std::int32_t>(id.get<std::int64_t>()));
  }
  return vocabulary;
}

bool lacks_byte_characters(const Vocabulary& vocabulary) {
  for (int byte = 0; byte < 256; ++byte) {
    std::string character;
    append_utf8(character, byte_character(static_cast<unsigned char>(byte)));
    if (!vocabulary.contains(character)) return true;
  }
  return false;
}

}  // namespace

Pipeline::Pipeline(const Node& file, const std::vector<AddedToken>& listed, const std::vector<AddedToken>& if_absent)
    : ids_(read_vocabulary(file["model"])),
      added_(numbered(file["added_tokens"], read_added_tokens(file["added_tokens"]), listed, if_absent, ids_,
                      file["model"]["vocab"].value().size())),
      normalizers_(read_normalizers(file["normalizer"])),
      in_text_(added_, false, normalizers_),
      in_normalized_(added_, true, normalizers_),
      pre_tokenizers_(read_pre_tokenizers(file["pre_tokenizer"])),
      frame_(read_post_processor(file["post_processor"])),
      decoders_(read_decoders(file["decoder"])) {
  model_ = std::make_unique<const Model>(read_model(file["model"], ids_, pre_tokenizers_));
  for (const AddedToken& token : added_) ids_.emplace(token.content, token.id);
  read_texts(file["model"]["vocab"]);
  for (const auto& ids : {frame_.before, frame_.after})
    for (const std::int32_t id : ids)
      if (id >= vocab_size() || !texts_[static_cast<std::size_t>(id)].exists)
        file["post_processor"].refuse(fmt::format("has the id {}, which no token has", id));
}

Pipeline::Model Pipeline::read_model(const Node& node, const Vocabulary& vocabulary, PreTokenizers& pre_tokenizers) {
  const bool unigram = model_type(node) == "Unigram";
  // With byte_fallback, characters of missing byte tokens fall back to the tokens of their UTF-8 bytes.
  const bool falls_back = node.flag("byte_fallback", false) && lacks_byte_characters(vocabulary);
  if (pre_tokenizers.bytes && (unigram || falls_back || Bpe::has_affixes(node))) {
    pre_tokenizers.bytes = false;
    pre_tokenizers.steps.emplace_back(BytesToCharacters{});
  }
  if (unigram) return Unigram(node, vocabulary);
  return Bpe(node, vocabulary, pre_tokenizers.bytes);
}

/// A list may hold a token twice: each of its ids has the text then.
void Pipeline::read_texts(const Node& vocabulary) {
  const auto set = [&](std::int32_t id, const std::string& text) {
    const auto index = static_cast<std::size_t>(id);
    if (index >= texts_.size()) texts_.resize(index + 1);
    texts_[index] = {.text = text, .exists = true};
  };
  if (vocabulary.value().is_array()) {
    std::int32_t id = 0;
    for (const auto& item : vocabulary.value()) set(id++, item[0].get_ref<const std::string&>());
  }
  for (const auto& [text, id] : ids_) set(id, text);
  Vocabulary special;
  for (const AddedToken& token : added_)
    if (token.special) special.emplace(token.content, token.id);
  for (Token& token : texts_) token.special = special.contains(token.text);
}

std::int32_t Pipeline::id(std::string_view token) const { return id_of(ids_, token); }

std::unique_ptr<Pipeline::Buffers> Pipeline::take_buffers() const {
  const std::lock_guard lock(mutex_);
  if (free_.empty()) return std::make_unique<Buffers>();
  auto buffers = std::move(free_.back());
  free_.pop_back();
  return buffers;
}

std::vector<std::int32_t> Pipeline::encode(std::string_view text) const {
  constexpr std::size_t most_bytes = std::size_t{1} << 30;
  if (text.size() > most_bytes) throw DataError("a text of more than 1 GiB cannot be tokenized at once");
  auto buffers = take_buffers();
  std::vector<std::int32_t> ids;
  ids.reserve(text.size() / 3);
  const std::string_view valid = valid_utf8(text, buffers->valid);
  in_text_.split(
      valid, [&](std::int32_t id) { ids.push_back(id); },
      [&](std::size_t begin, std::size_t end) {
        encode_section(valid.substr(begin, end - begin), begin == 0, *buffers, ids);
      });
  const std::lock_guard lock(mutex_);
  free_.push_back(std::move(buffers));
  return ids;
}

void Pipeline::encode_section(std::string_view section, bool begins, Buffers& buffers,
                              std::vector<std::int32_t>& ids) const {
  const std::string_view text = normalized(normalizers_, section, buffers.normalized, &begins);
  in_normalized_.split(
      text, [&](std::int32_t id) { ids.push_back(id); },
      [&](std::size_t begin, std::size_t end) {
        Pieces& pieces = buffers.pieces;
        pre_tokenize(pre_tokenizers_, text.substr(begin, end - begin), begins && begin == 0, pieces);
        std::visit(
            [&](const auto& model) {
              for (const Range range : pieces.ranges)
                model.encode(pieces.text.substr(range.begin, range.end - range.begin), buffers.work, ids);
            },
            *model_);
      });
}

std::string Pipeline::decode(std::span<const std::int32_t> ids) const {
  std::vector<std::string> tokens;
  for (const std::int32_t id : ids) {
    const bool known = id >= 0 && id < vocab_size() && texts_[static_cast<std::size_t>(id)].exists;
    if (!known) {
      tokens.emplace_back("\ufffd");
    } else if (const Token& token = texts_[static_cast<std::size_t>(id)]; !token.special) {
      tokens.push_back(token.text);
    }
  }
  return decoded(decoders_, std::move(tokens));
}

}  // namespace trireme::tokenizer::hf
