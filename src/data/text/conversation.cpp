// SPDX-License-Identifier: Apache-2.0
#include "data/text/conversation.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "data/text/json_line.hpp"
#include "trireme/base/error.hpp"

namespace trireme::data::text {
namespace {

/// How a message is written: `before_role` ROLE `after_role` CONTENT `end` `after`. The content and `end` of an
/// assistant's message count.
struct ChatFormat {
  std::string_view name, before_role, after_role, end, after;
};
/// ChatML as Qwen and SmolLM have it; Llama 3's as in Meta's model card. Neither adds a system message.
constexpr std::array chat_formats{
    ChatFormat{"chatml", "<|im_start|>", "\n", "<|im_end|>", "\n"},
    ChatFormat{"llama3", "<|start_header_id|>", "<|end_header_id|>\n\n", "<|eot_id|>", ""}};

const ChatFormat& format_of(const std::string& chat) {
  const auto* const found = std::ranges::find(chat_formats, chat, &ChatFormat::name);
  if (found == chat_formats.end())
    throw ConfigError(fmt::format("--chat {} is not known; give chatml or llama3", chat));
  return *found;
}

/// The text at `key` of a message.
std::string text_of(const nlohmann::json& message, const char* key, const std::string& where) {
  const auto found = message.is_object() ? message.find(key) : message.end();
  if (!message.is_object() || found == message.end() || !found->is_string())
    throw DataError(fmt::format("{}: a message needs the texts \"role\" and \"content\"", where));
  return found->get<std::string>();
}

std::vector<Piece> messages_of_line(std::string_view line, const Lines& lines, std::int64_t number) {
  const nlohmann::json object = object_of_line(line, lines.name, number);
  const std::string where = fmt::format("{}, line {}", lines.name, number);
  const auto found = object.find(lines.field);
  if (found == object.end() || !found->is_array())
    throw DataError(fmt::format("{}: the field \"{}\" is not a list of messages", where, lines.field));
  const ChatFormat& chat = format_of(lines.chat);
  std::vector<Piece> pieces;
  for (const nlohmann::json& message : *found) {
    const std::string role = text_of(message, "role", where);
    pieces.push_back({.text = fmt::format("{}{}{}", chat.before_role, role, chat.after_role)});
    pieces.push_back(
        {.text = fmt::format("{}{}", text_of(message, "content", where), chat.end), .counts = role == "assistant"});
    if (!chat.after.empty()) pieces.push_back({.text = std::string(chat.after)});
  }
  return pieces;
}

std::size_t common_prefix(std::span<const std::int32_t> a, std::span<const std::int32_t> b) {
  return static_cast<std::size_t>(std::ranges::mismatch(a, b).in1 - a.begin());
}

}  // namespace

std::vector<Piece> pieces_of_line(std::string_view line, const Lines& lines, std::int64_t number) {
  if (!lines.chat.empty()) return messages_of_line(line, lines, number);
  std::string response = text_of_line(line, lines.response, lines.name, number);
  if (response.empty()) return {};
  std::vector<Piece> pieces;
  if (std::string prompt = text_of_line(line, lines.field, lines.name, number); !prompt.empty())
    pieces.push_back({.text = std::move(prompt)});
  pieces.push_back({.text = std::move(response), .counts = true});
  return pieces;
}

EncodedPart encode(const tokenizer::Tokenizer& tokenizer, std::span<const Piece> pieces) {
  std::string text;
  for (const Piece& piece : pieces) text += piece.text;
  const std::vector<std::int32_t> ids = tokenizer.encode(text);
  EncodedPart encoded{.ids = tokenizer.document_begin(), .text_bytes = static_cast<std::int64_t>(text.size())};
  encoded.counts.assign(encoded.ids.size(), 0);
  std::size_t end = 0;
  for (const Piece& piece : pieces) {
    end += piece.text.size();
    const std::size_t tokens =
        end == text.size() ? ids.size() : common_prefix(ids, tokenizer.encode(std::string_view(text).substr(0, end)));
    const std::size_t done = encoded.counts.size() - encoded.ids.size();
    if (tokens > done) encoded.counts.insert(encoded.counts.end(), tokens - done, piece.counts ? 1 : 0);
  }
  encoded.ids.insert(encoded.ids.end(), ids.begin(), ids.end());
  encoded.ids.push_back(tokenizer.document_end());
  encoded.counts.push_back(pieces.back().counts || (pieces.size() > 1 && pieces[pieces.size() - 2].counts) ? 1 : 0);
  return encoded;
}

void check_chat(const std::string& chat, const tokenizer::Tokenizer& tokenizer) {
  const ChatFormat& format = format_of(chat);
  for (const std::string_view mark : {format.before_role, format.end})
    if (tokenizer.encode(mark).size() != 1)
      throw ConfigError(fmt::format(
          "--chat {}: \"{}\" is not a token of this tokenizer; take the tokenizer of a chat model, or write "
          "prompts and responses as text (--field prompt --response response)",
          chat, mark));
}

}  // namespace trireme::data::text
