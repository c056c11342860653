// SPDX-License-Identifier: Apache-2.0
#include "data/text/conversation.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/io/json.hpp"
#include "data/text/json_line.hpp"
#include "trireme/base/error.hpp"

namespace trireme::data::text {
namespace {

/// Format of a message: `before_role` ROLE `after_role` CONTENT `end` `after`. The content and `end` of an assistant's
/// message count.
struct ChatFormat {
  std::string_view name, before_role, after_role, end, after;
  bool trims;  ///< white space at both ends of contents, as Python's strip()
};
/// ChatML as Qwen and SmolLM have it; Llama 3's as in Meta's model card. Neither adds a system message.
constexpr std::array chat_formats{
    ChatFormat{"chatml", "<|im_start|>", "\n", "<|im_end|>", "\n", false},
    ChatFormat{"llama3", "<|start_header_id|>", "<|end_header_id|>\n\n", "<|eot_id|>", "", true}};

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

/// `text` as Python's strip() leaves it.
std::string stripped(std::string_view text) {
  static constexpr std::array<std::string_view, 29> blanks = {
      " ",      "\t",     "\n",     "\v",     "\f",     "\r",     "\x1c",   "\x1d",   "\x1e",   "\x1f",
      "\u0085", "\u00a0", "\u1680", "\u2000", "\u2001", "\u2002", "\u2003", "\u2004", "\u2005", "\u2006",
      "\u2007", "\u2008", "\u2009", "\u200a", "\u2028", "\u2029", "\u202f", "\u205f", "\u3000"};
  const auto removed = [&](auto at_an_end, auto remove) {
    const auto* const blank = std::ranges::find_if(blanks, at_an_end);
    if (blank != blanks.end()) remove(blank->size());
    return blank != blanks.end();
  };
  while (removed([&](std::string_view blank) { return text.starts_with(blank); },
                 [&](std::size_t size) { text.remove_prefix(size); })) {
  }
  while (removed([&](std::string_view blank) { return text.ends_with(blank); },
                 [&](std::size_t size) { text.remove_suffix(size); })) {
  }
  return std::string(text);
}

/// Whether a value is empty, as of keys that the writer of the file did not use.
bool is_absent(const nlohmann::json& value) {
  return value.is_null() || ((value.is_string() || value.is_array() || value.is_object()) && value.empty());
}

/// Whether "weight" or "train" of a message is 0 or false; none if it is neither that nor 1 or true.
std::optional<bool> leaves_out(const nlohmann::json& value) {
  if (value.is_boolean()) return !value.get<bool>();
  if (value.is_number() && (value == 0 || value == 1)) return value == 0;
  return std::nullopt;
}

/// Whether a message of `role` counts. Rejects keys that the format would drop.
bool is_counted(const nlohmann::json& message, const std::string& role, const Lines& lines, const std::string& where) {
  bool counted = role == "assistant";
  for (const auto& [key, value] : message.items()) {
    if (key == "role" || key == "content" || is_absent(value)) continue;
    if (key != "weight" && key != "train")
      throw DataError(
          fmt::format("{}: --chat {} has no place for {} of a message; write the conversation as text with the model's "
                      "own template, "
                      "into the fields of --field and --response, or remove the key if it means nothing",
                      where, lines.chat, io::in_quotes(key)));
    const std::optional<bool> left_out = leaves_out(value);
    if (!left_out)
      throw DataError(fmt::format("{}: \"{}\" of a message is {}; it takes 0 and 1, or false and true", where, key,
                                  io::in_quotes(value.dump())));
    if (key == "train" && left_out == false && role != "assistant")
      throw DataError(fmt::format(
          "{}: a message of role {} is to be trained on; messages of the assistant alone can be", where, role));
    if (left_out == true) counted = false;
  }
  return counted;
}

void check_role(const std::string& role, const Lines& lines, const std::string& where) {
  if (role == "system" || role == "user" || role == "assistant") return;
  throw DataError(fmt::format(
      "{}: a message has the role {}; --chat {} takes system, user and assistant: rename it, as in gpt or model to "
      "assistant, or write conversations with tools as text with the model's own template",
      where, io::in_quotes(role), lines.chat));
}

std::vector<Piece> messages_of_line(std::string_view line, const Lines& lines, std::int64_t number) {
  const nlohmann::json object = object_of_line(line, lines.name, number);
  const std::string where = fmt::format("{}, line {}", lines.name, number);
  const nlohmann::json* found = find_field(object, lines.field);
  if (found == nullptr || !found->is_array())
    throw DataError(fmt::format("{}: the field \"{}\" is not a list of messages", where, lines.field));
  for (const char* const key : {"tools", "functions"})
    if (const auto tools = object.find(key); tools != object.end() && !is_absent(*tools))
      throw DataError(fmt::format(
          "{}: --chat {} has no place for \"{}\"; write conversations with tools as text with the model's own "
          "template, or remove the key if it means nothing",
          where, lines.chat, key));
  const ChatFormat& chat = format_of(lines.chat);
  std::vector<Piece> pieces;
  for (const nlohmann::json& message : *found) {
    const std::string role = text_of(message, "role", where);
    check_role(role, lines, where);
    const bool counted = is_counted(message, role, lines, where);
    std::string content = text_of(message, "content", where);
    const auto given = static_cast<std::int64_t>(content.size());
    if (chat.trims) content = stripped(content);
    pieces.push_back(
        {.text = fmt::format("{}{}{}", chat.before_role, role, chat.after_role), .begins_with_mark = true});
    pieces.push_back({.text = std::move(content) + std::string(chat.end), .counts = counted, .given_bytes = given});
    if (!chat.after.empty()) pieces.push_back({.text = std::string(chat.after)});
  }
  return pieces;
}

std::size_t common_prefix(std::span<const std::int32_t> a, std::span<const std::int32_t> b) {
  return static_cast<std::size_t>(std::ranges::mismatch(a, b).in1 - a.begin());
}

Piece plain(std::string text, bool counts) {
  const auto bytes = static_cast<std::int64_t>(text.size());
  return {.text = std::move(text), .counts = counts, .given_bytes = bytes};
}

}  // namespace

std::vector<Piece> pieces_of_line(std::string_view line, const Lines& lines, std::int64_t number) {
  if (!lines.chat.empty()) return messages_of_line(line, lines, number);
  std::string response = text_of_line(line, lines.response, lines.name, number);
  if (response.empty()) return {};
  std::vector<Piece> pieces;
  if (std::string prompt = text_of_line(line, lines.field, lines.name, number); !prompt.empty())
    pieces.push_back(plain(std::move(prompt), false));
  pieces.push_back(plain(std::move(response), true));
  return pieces;
}

EncodedPart encode(const tokenizer::Tokenizer& tokenizer, const Lines& lines, std::span<const Piece> pieces) {
  std::string text;
  EncodedPart encoded{.ids = tokenizer.document_begin()};
  for (const Piece& piece : pieces) {
    text += piece.text;
    encoded.text_bytes += piece.given_bytes;
  }
  const std::vector<std::int32_t> ids = tokenizer.encode(text);
  encoded.counts.assign(encoded.ids.size(), 0);
  const auto append = [&](std::size_t tokens, bool counts) {
    const std::size_t done = encoded.counts.size() - encoded.ids.size();
    if (tokens > done) encoded.counts.insert(encoded.counts.end(), tokens - done, counts ? 1 : 0);
  };
  const std::int32_t mark = lines.marks_divide ? tokenizer.encode(format_of(lines.chat).before_role).front() : -1;
  std::size_t end = 0;           // of the pieces so far
  std::size_t from = 0, at = 0;  // a byte, and its token, whose ids do not depend on the text before
  for (const Piece& piece : pieces) {
    const std::size_t begin = end, done = encoded.counts.size() - encoded.ids.size();
    end += piece.text.size();
    if (lines.marks_divide && piece.begins_with_mark && done < ids.size() && ids[done] == mark) {
      from = begin;
      at = done;
    }
    append(end == text.size() ? ids.size()
                              : at + common_prefix(std::span(ids).subspan(at),
                                                   tokenizer.encode(std::string_view(text).substr(from, end - from))),
           piece.counts);
  }
  encoded.ids.insert(encoded.ids.end(), ids.begin(), ids.end());
  if (ends_document(tokenizer, ids)) return encoded;
  encoded.ids.push_back(tokenizer.document_end());
  encoded.counts.push_back(pieces.back().counts || (pieces.size() > 1 && pieces[pieces.size() - 2].counts) ? 1 : 0);
  return encoded;
}

bool check_chat(const std::string& chat, const tokenizer::Tokenizer& tokenizer) {
  const ChatFormat& format = format_of(chat);
  for (const std::string_view mark : {format.before_role, format.end})
    if (tokenizer.encode(mark).size() != 1)
      throw ConfigError(fmt::format(
          "--chat {}: \"{}\" is not a token of this tokenizer; take the tokenizer of a chat model, or write "
          "prompts and responses as text (--field prompt --response response)",
          chat, mark));
  const std::string before = "Ab c", after = std::string(format.before_role) + " user e\u0301\nd";
  std::vector<std::int32_t> apart = tokenizer.encode(before);
  std::ranges::copy(tokenizer.encode(after), std::back_inserter(apart));
  return apart == tokenizer.encode(before + after);
}

std::string message_text(const std::string& chat, std::string_view role, std::string_view content) {
  const ChatFormat& format = format_of(chat);
  return fmt::format("{}{}{}{}{}{}", format.before_role, role, format.after_role,
                     format.trims ? stripped(content) : std::string(content), format.end, format.after);
}

std::string reply_begin(const std::string& chat) {
  const ChatFormat& format = format_of(chat);
  return fmt::format("{}assistant{}", format.before_role, format.after_role);
}

std::string reply_end(const std::string& chat) { return std::string(format_of(chat).end); }

std::string chat_of_template(std::string_view jinja) {
  for (const ChatFormat& format : chat_formats)
    if (jinja.find(format.before_role) != std::string_view::npos && jinja.find(format.end) != std::string_view::npos)
      return std::string(format.name);
  return "";
}

}  // namespace trireme::data::text
