// SPDX-License-Identifier: Apache-2.0
#include "cli/start/help_text.hpp"

#include <gtest/gtest.h>

namespace trireme::cli {
namespace {

TEST(WrapHelp, LeavesLinesThatFit) {
  const std::string text = "Usage: trireme plan [OPTIONS]\n\n  --set TEXT     a key\n";
  EXPECT_EQ(wrap_help(text, 40), text);
}

TEST(WrapHelp, ContinuesADescriptionInItsColumn) {
  EXPECT_EQ(wrap_help("  --set TEXT ...   override a key of the run file\n", 36),
            "  --set TEXT ...   override a key of\n"
            "                   the run file\n");
}

TEST(WrapHelp, ContinuesTextAtItsIndentation) {
  EXPECT_EQ(wrap_help("    one two three four\n", 14), "    one two\n    three four\n");
  EXPECT_EQ(wrap_help("  a                      far right\n", 20), "  a far right\n")
      << "a description that begins beyond two thirds of the columns has no column";
}

TEST(WrapHelp, ContinuesACommandAfterABackslash) {
  EXPECT_EQ(wrap_help("  trireme init --from model --data tokens.bin\n", 32),
            "  trireme init --from model \\\n      --data tokens.bin\n");
}

TEST(WrapHelp, KeepsAWordThatIsLongerThanALine) {
  EXPECT_EQ(wrap_help("see docs/recipes.md#evaluation here\n", 10), "see\ndocs/recipes.md#evaluation\nhere\n");
}

}  // namespace
}  // namespace trireme::cli
