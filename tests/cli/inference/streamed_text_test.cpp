// SPDX-License-Identifier: Apache-2.0
#include "cli/inference/streamed_text.hpp"

#include <gtest/gtest.h>

namespace trireme::cli::streamed_text_test {
namespace {

struct Shown {
  std::vector<std::string> parts;
  std::string all;
  bool stopped = false;
};

/// What is shown of "the " and the bytes of `text`.
Shown stream(const std::string& text, std::vector<std::string> stops) {
  const auto tokenizer = tokenizer::make_tokenizer("bytes");
  StreamedText streamed(*tokenizer, tokenizer->encode("the "), std::move(stops));
  Shown shown;
  for (const std::int32_t id : tokenizer->encode(text)) {
    shown.all += shown.parts.emplace_back(streamed.add(id));
    if (streamed.stopped()) break;
  }
  shown.all += streamed.rest();
  shown.stopped = streamed.stopped();
  return shown;
}

TEST(StreamedText, ShowsEveryTokenAsItComes) {
  const Shown shown = stream("ship", {});
  EXPECT_EQ(shown.parts, (std::vector<std::string>{"the s", "h", "i", "p"}));
  EXPECT_FALSE(shown.stopped);
}

TEST(StreamedText, ShowsNothingOfAStop) {
  for (const auto& [text, stops, expected] :
       {std::tuple{std::string("ship. And"), std::vector<std::string>{". "}, "the ship"},
        std::tuple{std::string("ship.and. end"), std::vector<std::string>{". ", "nothing"}, "the ship.and"},
        std::tuple{std::string("aab"), std::vector<std::string>{"ab"}, "the a"},
        std::tuple{std::string("xyz"), std::vector<std::string>{"z", "yz"}, "the x"}}) {
    const Shown shown = stream(text, stops);
    EXPECT_EQ(shown.all, expected);
    EXPECT_TRUE(shown.stopped);
  }
}

TEST(StreamedText, ShowsWhatOnlyBeganLikeAStop) {
  const Shown shown = stream("oars en", {"end"});
  EXPECT_EQ(shown.all, "the oars en");
  EXPECT_FALSE(shown.stopped);
}

TEST(StreamedText, DoesNotLookForStopsInThePrompt) {
  const Shown shown = stream("ship", {"the"});
  EXPECT_EQ(shown.all, "the ship");
  EXPECT_FALSE(shown.stopped);
}

}  // namespace
}  // namespace trireme::cli::streamed_text_test
