// SPDX-License-Identifier: Apache-2.0
#include "cli/inference/chat_template.hpp"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "data/text/conversation.hpp"
#include "support/temporary_directory.hpp"

namespace trireme::cli {
namespace {

constexpr std::string_view with_system =
    "{% if messages[0]['role'] != 'system' %}{{ '<|im_start|>system\\nYou are small.\\nBe brief.<|im_end|>\\n' }}"
    "{% endif %}{% for message in messages %}{{'<|im_start|>' + message['role'] + '\\n' + message['content'] + "
    "'<|im_end|>' + '\\n'}}{% endfor %}";

TEST(ReadChatTemplate, RecognizesTheFormatByItsMarks) {
  EXPECT_EQ(read_chat_template(with_system).chat, "chatml");
  EXPECT_EQ(read_chat_template("<|start_header_id|>user<|end_header_id|>\n\nhi<|eot_id|>").chat, "llama3");
  EXPECT_EQ(read_chat_template("[INST] {{ message }} [/INST]").chat, "");
  EXPECT_EQ(read_chat_template("").chat, "");
}

TEST(ReadChatTemplate, TakesAFixedSystemMessage) {
  EXPECT_EQ(read_chat_template(with_system).system, "You are small.\nBe brief.");
  EXPECT_EQ(read_chat_template("{{ '<|im_start|>system\\n' + messages[0]['content'] + '<|im_end|>\\n' }}").system, "");
}

TEST(ReadChatTemplate, RecognizesDatesAndThoughts) {
  EXPECT_TRUE(read_chat_template("Cutting Knowledge Date: December 2023").writes_dates);
  EXPECT_TRUE(read_chat_template("{{ content.split('</think>')[-1] }}").drops_thoughts);
  EXPECT_FALSE(read_chat_template(with_system).drops_thoughts);
}

TEST(ChatTemplateBeside, ReadsTheJinjaFileBeforeTheConfiguration) {
  const test::TemporaryDirectory directory;
  const auto write = [&](const char* name, const std::string& text) {
    std::ofstream(std::filesystem::path(directory.path()) / name) << text;
  };
  const std::string file = (std::filesystem::path(directory.path()) / "tokenizer.json").string();
  EXPECT_EQ(chat_template_beside(file), "");
  write("tokenizer_config.json", R"({"chat_template": [{"name": "tools", "template": "t"},
                                                       {"name": "default", "template": "d"}]})");
  EXPECT_EQ(chat_template_beside(file), "d");
  write("tokenizer_config.json", R"({"chat_template": "one"})");
  EXPECT_EQ(chat_template_beside(file), "one");
  write("chat_template.jinja", "two");
  EXPECT_EQ(chat_template_beside(file), "two");
  EXPECT_EQ(chat_template_beside(directory.path()), "two");
}

TEST(Conversation, IsWrittenAsTheTemplateWritesIt) {
  Conversation chat({.chat = "chatml"}, "Be brief.");
  chat.ask("Hi");
  EXPECT_EQ(chat.prompt(),
            "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n");
  chat.reply("Yes.");
  chat.ask("Why?");
  EXPECT_EQ(chat.prompt(),
            "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\nYes."
            "<|im_end|>\n<|im_start|>user\nWhy?<|im_end|>\n<|im_start|>assistant\n");
  Conversation llama({.chat = "llama3"}, "");
  llama.ask(" Hi ");
  EXPECT_EQ(
      llama.prompt(),
      "<|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n");
}

TEST(Conversation, LeavesThoughtsOutOfEarlierReplies) {
  Conversation chat({.chat = "chatml", .drops_thoughts = true}, "");
  chat.ask("1+1?");
  chat.reply("<think>\nhm\n</think>\n\n2");
  EXPECT_EQ(chat.prompt().find("think"), std::string::npos);
  EXPECT_NE(chat.prompt().find("assistant\n2<|im_end|>"), std::string::npos);
}

TEST(Conversation, DropsTheOldestQuestionsAndKeepsTheSystemMessage) {
  Conversation chat({.chat = "chatml"}, "SYSTEM");
  for (const char* question : {"first", "second"}) {
    chat.ask(question);
    chat.reply("reply");
  }
  chat.ask("third");
  const auto size = [](const std::string& text) { return static_cast<std::int64_t>(text.size()); };
  EXPECT_EQ(chat.shorten(size, size(chat.prompt())), 0U);
  EXPECT_EQ(chat.shorten(size, size(chat.prompt()) - 1), 1U);
  EXPECT_EQ(chat.prompt().find("first"), std::string::npos);
  EXPECT_NE(chat.prompt().find("second"), std::string::npos);
  EXPECT_EQ(chat.shorten(size, 1), 1U);
  EXPECT_NE(chat.prompt().find("third"), std::string::npos) << "the last question stays";
  EXPECT_NE(chat.prompt().find("SYSTEM"), std::string::npos);
}

}  // namespace
}  // namespace trireme::cli
