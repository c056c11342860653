// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

/// The conversation of `trireme chat`.
namespace trireme::cli {

/// Properties of a model's chat template. Templates are not run: their marks give one of the formats of
/// `tokenize --chat`.
struct ChatTemplate {
  std::string chat;             ///< "chatml", "llama3"; "": another format
  std::string system;           ///< the system message that the template writes where none is given
  bool drops_thoughts = false;  ///< earlier replies are written without the text before </think>
  bool writes_dates = false;    ///< it writes dates into the system message, as Llama 3.1's does
};

[[nodiscard]] ChatTemplate read_chat_template(std::string_view jinja);

/// The text of chat_template.jinja in the folder of a tokenizer's file, else of chat_template in tokenizer_config.json
/// ("default" of several); "" where there is none.
[[nodiscard]] std::string chat_template_beside(const std::string& tokenizer_file);

struct Message {
  std::string role, content;
};

/// The messages of a conversation, oldest first, behind the system message.
class Conversation {
 public:
  /// system: "" for none.
  Conversation(ChatTemplate format, std::string system) : format_(std::move(format)), system_(std::move(system)) {}

  void ask(std::string content) { messages_.push_back({"user", std::move(content)}); }
  /// Adds the reply to the last question.
  void reply(std::string_view content);
  /// Takes back the last question.
  void take_back() { messages_.pop_back(); }
  void clear() { messages_.clear(); }
  /// The text that the model continues with its reply.
  [[nodiscard]] std::string prompt() const;
  /// Removes the oldest questions with their replies until `tokens` of the prompt is at most `most`; returns how many.
  /// The last question stays: the prompt may still be longer.
  std::size_t shorten(const std::function<std::int64_t(const std::string&)>& tokens, std::int64_t most);

 private:
  ChatTemplate format_;
  std::string system_;
  std::vector<Message> messages_;
};

}  // namespace trireme::cli
