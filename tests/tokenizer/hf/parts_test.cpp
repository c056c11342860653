// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tokenizer/hf/pre_tokenizer.hpp"
#include "tokenizer/model/vocabulary.hpp"
#include "tokenizer/model/word_cache.hpp"
#include "tokenizer/text/utf8.hpp"

namespace trireme::tokenizer::hf {
namespace {

/// The pieces of a text with bars between them.
std::string pieces_of(const nlohmann::json& description, std::string_view text) {
  const PreTokenizers pre_tokenizers = read_pre_tokenizers(Node(description, "test"));
  Pieces pieces;
  pre_tokenize(pre_tokenizers, text, true, pieces);
  std::string all;
  for (const Range range : pieces.ranges)
    all += std::string(pieces.text.substr(range.begin, range.end - range.begin)) + "|";
  return all;
}

TEST(PreTokenizer, SplitsInEveryWay) {
  const auto split = [](const char* behavior, bool invert = false) {
    return nlohmann::json{
        {"type", "Split"}, {"pattern", {{"String", "-"}}}, {"behavior", behavior}, {"invert", invert}};
  };
  EXPECT_EQ(pieces_of(split("Isolated"), "a--b-"), "a|-|-|b|-|");
  EXPECT_EQ(pieces_of(split("Removed"), "a--b-"), "a|b|");
  EXPECT_EQ(pieces_of(split("Contiguous"), "a--b-"), "a|--|b|-|");
  EXPECT_EQ(pieces_of(split("MergedWithPrevious"), "a--b-"), "a-|-|b-|");
  EXPECT_EQ(pieces_of(split("MergedWithNext"), "a--b-"), "a|-|-b|-|");
  EXPECT_EQ(pieces_of(split("Removed", true), "a--b-"), "-|-|-|");
}

TEST(PreTokenizer, PutsABlankInFrontOfTheTextOnly) {
  const auto metaspace = [](const char* scheme) {
    return nlohmann::json{{"type", "Metaspace"}, {"replacement", "_"}, {"prepend_scheme", scheme}};
  };
  EXPECT_EQ(pieces_of(metaspace("always"), "ab c"), "_ab|_c|");
  EXPECT_EQ(pieces_of(metaspace("never"), "ab c"), "ab|_c|");
  EXPECT_EQ(
      pieces_of({{"type", "Sequence"}, {"pretokenizers", {{{"type", "WhitespaceSplit"}}, metaspace("first")}}}, "a b"),
      "_a|b|");
  EXPECT_EQ(
      pieces_of({{"type", "Sequence"}, {"pretokenizers", {{{"type", "WhitespaceSplit"}}, metaspace("first")}}}, " a b"),
      "a|b|");
}

TEST(NormalForm, LeavesCharactersNewerThanUnicodeNine) {
  EXPECT_EQ(normal_form("e\u0301 \u212b", NormalForm::nfc), "\u00e9 \u00c5");
  EXPECT_EQ(normal_form("\u00e9", NormalForm::nfd), "e\u0301");
  EXPECT_EQ(normal_form("\ufb01", NormalForm::nfkc), "fi");
  EXPECT_EQ(normal_form("a\u08cd\u0356", NormalForm::nfc), "a\u08cd\u0356")
      << "U+08CD is of Unicode 14: nothing moves over it";
  EXPECT_EQ(normal_form("a\u0301\u0356", NormalForm::nfd), "a\u0356\u0301");
}

TEST(WordCache, StaysRightWhenItBeginsAnew) {
  WordCache cache;
  std::vector<std::int32_t> found;
  const auto word = [](int i) { return "word " + std::to_string(i); };
  for (std::int32_t i = 0; i < 300'000; ++i) {
    const std::string text = word(i);
    ASSERT_FALSE(cache.find(text, hash_of(text), found));
    cache.insert(text, hash_of(text), &i, 1);
    found.clear();
    ASSERT_TRUE(cache.find(text, hash_of(text), found));
    ASSERT_EQ(found, std::vector{i});
    found.clear();
  }
  EXPECT_FALSE(cache.find(word(1), hash_of(word(1)), found)) << "it would grow for ever";
}

}  // namespace
}  // namespace trireme::tokenizer::hf
