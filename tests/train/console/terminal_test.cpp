// SPDX-License-Identifier: Apache-2.0
#include "trireme/train/console/terminal.hpp"

#include <gtest/gtest.h>

namespace trireme::train {
namespace {

const TerminalInfo person{.terminal = true};

TerminalInfo with_term(TerminalInfo surroundings, const char* term = "xterm") {
  surroundings.term = term;
  return surroundings;
}

TEST(RewritesLines, OnATerminalOnly) {
  EXPECT_TRUE(rewrites_lines(with_term(person)));
  EXPECT_FALSE(rewrites_lines(with_term({.terminal = false})));
}

TEST(RewritesLines, NotOnATerminalThatCannotOrShallNot) {
  EXPECT_FALSE(rewrites_lines(with_term(person, "dumb")));
  EXPECT_FALSE(rewrites_lines(with_term(person, "")));
  EXPECT_FALSE(rewrites_lines(with_term({.terminal = true, .no_color = true})));
}

// mpirun gives rank 0 a pseudo-terminal even when its own output goes into a file.
TEST(RewritesLines, UnderMpirunWhereMpirunItselfWritesToATerminal) {
  EXPECT_TRUE(rewrites_lines(with_term({.terminal = true, .under_open_mpi = true, .launcher_terminal = true})));
  EXPECT_FALSE(rewrites_lines(with_term({.terminal = true, .under_open_mpi = true, .launcher_terminal = false})));
}

}  // namespace
}  // namespace trireme::train
