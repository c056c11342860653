// SPDX-License-Identifier: Apache-2.0
#include "trireme/config/text_source.hpp"

#include <gtest/gtest.h>

namespace trireme::config::text_source_test {
namespace {

TEST(TextSource, IsRecognizedByItsName) {
  for (const char* text : {"a.jsonl", "a.jsonl.gz", "web/*.bin#field=text", "web/*", "books/", "a.txt.zst",
                           "x.bin#field=content", "a.json", "data/part-?"})
    EXPECT_TRUE(names_text(text)) << text;
  for (const char* tokens :
       {"a.bin", "a.idx", "jsonl", "a.jsonl.bin", "c#/tokens.bin", "c#2.bin", "x#y", "web.gz", "*.bin", "b?.idx"})
    EXPECT_FALSE(names_text(tokens)) << tokens;
}

TEST(TextSource, ReadsOptions) {
  const auto text = parse_text_source("a#b/*.jsonl#field=m.content,skip_bad=10,cache=/tmp/x");
  ASSERT_TRUE(std::holds_alternative<TextSource>(text));
  EXPECT_EQ(std::get<TextSource>(text),
            (TextSource{.path = "a#b/*.jsonl", .field = "m.content", .cache = "/tmp/x", .skip_bad = 10}));
}

TEST(TextSource, RefusesOtherOptions) {
  for (const char* source : {"a.jsonl#fields=x", "a.jsonl#skip_bad=-1", "a.jsonl#skip_bad=ten", "a.jsonl#chat=chatml",
                             "a.jsonl#field=m,chat=gpt", "a.jsonl#field=m,chat=chatml,response=r", "a.jsonl#field=",
                             "a.json#plain=yes", "a.json#plain=true,field=x", "#field=x", "a.jsonl#field=x,y"})
    EXPECT_TRUE(std::holds_alternative<std::string>(parse_text_source(source))) << source;
}

}  // namespace
}  // namespace trireme::config::text_source_test
