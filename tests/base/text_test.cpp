// SPDX-License-Identifier: Apache-2.0
#include "trireme/base/text.hpp"

#include <gtest/gtest.h>

namespace trireme {
namespace {

TEST(GlobMatch, StarSpansDotsAndTheWholeNameMustFit) {
  EXPECT_TRUE(glob_match("*norm*", "model.layers.0.input_layernorm.weight"));
  EXPECT_TRUE(glob_match("*norm*", "model.norm.weight"));
  EXPECT_FALSE(glob_match("*norm*", "model.layers.0.mlp.up_proj.weight"));
  EXPECT_TRUE(glob_match("*.bias", "a.bias"));
  EXPECT_FALSE(glob_match("*.bias", "a.bias.weight"));
  EXPECT_TRUE(glob_match("model.layers.?.mlp.*", "model.layers.3.mlp.up_proj.weight"));
  EXPECT_FALSE(glob_match("model.layers.?.mlp.*", "model.layers.13.mlp.up_proj.weight"));
  EXPECT_TRUE(glob_match("*a*b*c*", "xxaxxbxbxcx"));
  EXPECT_TRUE(glob_match("", ""));
  EXPECT_TRUE(glob_match("**", ""));
  EXPECT_FALSE(glob_match("", "a"));
  EXPECT_FALSE(glob_match("norm", "model.norm.weight"));
}

TEST(GlobMatch, StaysFastOnHostilePatterns) {
  EXPECT_FALSE(glob_match("*a*a*a*a*a*a*a*a*a*a*b", std::string(5000, 'a')));
}

TEST(EditDistance, CountsInsertionsDeletionsReplacementsAndSwaps) {
  EXPECT_EQ(edit_distance("", ""), 0U);
  EXPECT_EQ(edit_distance("", "abc"), 3U);
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3U);
  EXPECT_EQ(edit_distance("wamrup", "warmup"), 1U);
  EXPECT_EQ(edit_distance("flaw", "lawn"), 2U);
}

TEST(Nearest, NamesWhatWasMeantOrNothing) {
  const std::vector<std::string> keys{"vocab_size", "hidden_size", "layers", "lr"};
  EXPECT_EQ(nearest("hiden_size", keys), "hidden_size");
  EXPECT_EQ(nearest("layer", keys), "layers");
  EXPECT_EQ(nearest("rl", keys), "lr");
  EXPECT_EQ(nearest("banana", keys), std::nullopt);
  EXPECT_EQ(nearest(std::string(100'000, 'x'), keys), std::nullopt);
}

TEST(Text, LinesHaveNoEnds) {
  using Lines = std::vector<std::string>;
  EXPECT_EQ(lines_of(""), Lines{});
  EXPECT_EQ(lines_of("a\n\nb"), (Lines{"a", "", "b"}));
  EXPECT_EQ(lines_of("a\n"), Lines{"a"});
}

TEST(Text, JoinsAndTrims) {
  EXPECT_EQ(join({}, ", "), "");
  EXPECT_EQ(join({"a", "b", "c"}, ", "), "a, b, c");
  EXPECT_EQ(trim(" \t a b \r\n"), "a b");
  EXPECT_EQ(trim("   "), "");
}

TEST(Lowercase, LeavesOtherLettersAlone) { EXPECT_EQ(lowercase("H100-80GB \xC3\x84"), "h100-80gb \xC3\x84"); }

TEST(Printable, ShowsControlCharactersAndWhatIsNoUtf8ByTheirBytes) {
  EXPECT_EQ(printable("a\x1b]0;x\x07z\n\t\x7f"), "a\\x1b]0;x\\x07z\\x0a\\x09\\x7f");
  EXPECT_EQ(printable_lines("a\x1b[2J\n\tb\r"), "a\\x1b[2J\n\tb\\x0d");
  EXPECT_EQ(printable("\u0080\u009b31m\u00a0\u00e9\u20ac\U0001f600"), "\\x80\\x9b31m\u00a0\u00e9\u20ac\U0001f600")
      << "C1";
  EXPECT_EQ(printable("\x9b\xff\xc2"), "\\x9b\\xff\\xc2") << "bytes that terminals of 8 bits follow";
  EXPECT_EQ(printable("\xc0\x9b\xe0\x80\x9b\xed\xa0\x80"), "\\xc0\\x9b\\xe0\\x80\\x9b\\xed\\xa0\\x80")
      << "overlong, surrogate";
  EXPECT_EQ(printable(std::string(1, '\0')), "\\x00");
}

}  // namespace
}  // namespace trireme
