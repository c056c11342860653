// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/text/pattern.hpp"

#include <gtest/gtest.h>

#include <stdexcept>
#include <vector>

#include "tokenizer/text/regex.hpp"

namespace trireme::tokenizer::hf {
namespace {

/// All matches of a pattern, one after the other with bars between them.
std::string matches(const std::string& pattern, std::string_view text) {
  const Regex regex(pattern, "key");
  std::string all;
  for (std::size_t at = 0; at < text.size();) {
    const auto found = regex.find(text, at);
    if (!found) break;
    all += std::string(text.substr(found->begin, found->end - found->begin)) + "|";
    at = std::max<std::size_t>(found->end, at + 1);
  }
  return all;
}

TEST(Pattern, HasTheClassesOfTheTokenizersPackage) {
  EXPECT_EQ(matches(R"(\s+)", "a\u00a0\u3000\u0085b\u180ec"), "\u00a0\u3000\u0085|");  // U+180E is no white space
  EXPECT_EQ(matches(R"([^\s]+)", "a\u180eb c"), "a\u180eb|c|");
  EXPECT_EQ(matches(R"([\S\n]+)", "a b\nc"), "a|b\nc|");
  EXPECT_EQ(matches(R"(\w+)", "e\u0301\u00b2_1 -\u00bd"), "e\u0301\u00b2_1|\u00bd|");
  EXPECT_EQ(matches(R"(\d+)", "1\u0663\u00b2"), "1\u0663|");
  EXPECT_EQ(matches(R"(\p{Han}+)", "\u4e00\u3001\u4e8c"), "\u4e00|\u4e8c|");  // the script alone: no ideographic comma
  EXPECT_EQ(matches(R"((?i:'s|'ll))", "'S 'LL '\u017f"), "'S|'LL|'\u017f|");
  EXPECT_EQ(matches(R"(\p{^L}+)", "a12b"), "12|");
  EXPECT_EQ(matches("a{,2}", "aaa"), "aa|a|");
}

TEST(Pattern, RefusesWhatHasAnotherMeaningThere) {
  for (const char* pattern : {"a$", "^a", R"(\bа)", R"(\h)", "a{1,3}+", "a{3}?", "[a&&b]", "[[:alpha:]]", "(?m:a)",
                              "(?<n>a)", R"(\G)", R"([\W])", R"(\xff)", "a{", "[a", "\\"})
    EXPECT_THROW((void)pcre2_pattern(pattern), std::invalid_argument) << pattern;
}

}  // namespace
}  // namespace trireme::tokenizer::hf
