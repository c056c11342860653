// SPDX-License-Identifier: Apache-2.0
#include "trireme/base/error.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace trireme {
namespace {

using testing::HasSubstr;

TEST(Invariant, NamesWhatIsBrokenAndWhere) {
  EXPECT_NO_THROW(invariant(true, "two is even"));
  try {
    invariant(false, "two is even");
    FAIL();
  } catch (const BugError& error) {
    EXPECT_EQ(error.code(), ExitCode::bug);
    EXPECT_THAT(error.what(), HasSubstr("two is even"));
    EXPECT_THAT(error.what(), HasSubstr("error_test.cpp"));
  }
}

TEST(Mistakes, AreAllReportedAtOnce) {
  Mistakes mistakes;
  EXPECT_TRUE(mistakes.empty());
  EXPECT_NO_THROW(mistakes.raise("run.toml"));
  mistakes.add("line 3: first");
  mistakes.add("line 5: second");
  try {
    mistakes.raise("run.toml has 2 mistakes:");
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_EQ(error.code(), ExitCode::usage);
    EXPECT_STREQ(error.what(), "run.toml has 2 mistakes:\n  line 3: first\n  line 5: second");
  }
}

TEST(Errors, CarryTheExitCodeOfTheirKind) {
  EXPECT_EQ(static_cast<int>(DataError("x").code()), 3);
  EXPECT_EQ(static_cast<int>(CheckpointError("x").code()), 4);
  EXPECT_EQ(static_cast<int>(EnvironmentError("x").code()), 5);
  EXPECT_EQ(static_cast<int>(NumericsError("x").code()), 6);
  EXPECT_EQ(static_cast<int>(HangError("x").code()), 7);
  EXPECT_EQ(static_cast<int>(WriteError("x").code()), 8);
}

}  // namespace
}  // namespace trireme
