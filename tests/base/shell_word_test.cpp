// SPDX-License-Identifier: Apache-2.0
#include "trireme/base/shell_word.hpp"

#include <gtest/gtest.h>

namespace trireme {
namespace {

TEST(ShellWord, IsQuotedWhereAShellWouldSplitOrExpandIt) {
  EXPECT_EQ(shell_word("runs/first/step-00000010"), "runs/first/step-00000010");
  EXPECT_EQ(shell_word("lr.warmup_steps=3"), "lr.warmup_steps=3");
  EXPECT_EQ(shell_word(""), "''");
  EXPECT_EQ(shell_word("a b"), "'a b'");
  EXPECT_EQ(shell_word("$x*"), "'$x*'");
  EXPECT_EQ(shell_word("it's"), "'it'\\''s'");
}

}  // namespace
}  // namespace trireme
