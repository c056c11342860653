// SPDX-License-Identifier: Apache-2.0
#include "cli/inference/chat_template.hpp"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/io/json.hpp"
#include "data/text/conversation.hpp"
#include "trireme/base/io/file.hpp"

namespace trireme::cli {
namespace {

namespace files = std::filesystem;
constexpr std::string_view thoughts_end = "</think>";

/// A literal of a template ("\n" in quotes) as the text that it writes.
std::string unescaped(std::string_view literal) {
  std::string text;
  for (std::size_t at = 0; at < literal.size(); ++at) {
    if (literal[at] != '\\' || at + 1 == literal.size()) {
      text += literal[at];
      continue;
    }
    ++at;
    text += literal[at] == 'n' ? '\n' : literal[at] == 't' ? '\t' : literal[at];
  }
  return text;
}

/// The system message that stands in the template: "<|im_start|>system\nYou are ...<|im_end|>".
std::string literal_system(std::string_view jinja) {
  constexpr std::string_view begin = "<|im_start|>system", end = "<|im_end|>";
  for (std::size_t at = 0; (at = jinja.find(begin, at)) != std::string_view::npos;) {
    at += begin.size();
    std::string_view behind = jinja.substr(at);
    if (behind.starts_with("\\n"))
      behind.remove_prefix(2);
    else if (behind.starts_with('\n'))
      behind.remove_prefix(1);
    const std::size_t last = behind.find(end);
    if (last == std::string_view::npos) continue;
    const std::string_view text = behind.substr(0, last);
    if (!text.empty() && text.find_first_of("'\"{}") == std::string_view::npos) return unescaped(text);
  }
  return "";
}

std::string read_if_there(const files::path& path) {
  constexpr std::int64_t most_bytes = 16 << 20;
  std::error_code ignored;
  return files::is_regular_file(path, ignored) ? io::read_text(path.string(), most_bytes) : "";
}

}  // namespace

ChatTemplate read_chat_template(std::string_view jinja) {
  return {.chat = data::text::chat_of_template(jinja),
          .system = literal_system(jinja),
          .drops_thoughts = jinja.find(thoughts_end) != std::string_view::npos,
          .writes_dates = jinja.find("Cutting Knowledge Date") != std::string_view::npos};
}

std::string chat_template_beside(const std::string& tokenizer_file) {
  const files::path path(tokenizer_file);
  std::error_code ignored;
  const files::path folder = files::is_directory(path, ignored) ? path : path.parent_path();
  if (std::string text = read_if_there(folder / "chat_template.jinja"); !text.empty()) return text;
  const nlohmann::json config = io::parse_or_discard(read_if_there(folder / "tokenizer_config.json"));
  if (!config.is_object() || !config.contains("chat_template")) return "";
  const nlohmann::json& given = config["chat_template"];
  if (given.is_string()) return given.get<std::string>();
  const auto text = [](const nlohmann::json& entry, const char* key) {
    return entry.is_object() && entry.contains(key) && entry[key].is_string() ? entry[key].get<std::string>() : "";
  };
  if (given.is_array())
    for (const nlohmann::json& entry : given)
      if (text(entry, "name") == "default") return text(entry, "template");
  return "";
}

void Conversation::reply(std::string_view content) {
  if (const std::size_t at = content.rfind(thoughts_end); format_.drops_thoughts && at != std::string_view::npos) {
    content.remove_prefix(at + thoughts_end.size());
    content.remove_prefix(std::min(content.find_first_not_of('\n'), content.size()));
  }
  messages_.push_back({"assistant", std::string(content)});
}

std::string Conversation::prompt() const {
  std::string text;
  if (!system_.empty()) text += data::text::message_text(format_.chat, "system", system_);
  for (const Message& message : messages_)
    text += data::text::message_text(format_.chat, message.role, message.content);
  return text + data::text::reply_begin(format_.chat);
}

std::size_t Conversation::shorten(const std::function<std::int64_t(const std::string&)>& tokens, std::int64_t most) {
  std::size_t removed = 0;
  while (messages_.size() > 1 && tokens(prompt()) > most) {
    messages_.erase(messages_.begin(), messages_.begin() + 2);
    ++removed;
  }
  return removed;
}

}  // namespace trireme::cli
