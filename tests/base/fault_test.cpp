// SPDX-License-Identifier: Apache-2.0
#include "trireme/base/fault.hpp"

#include <gtest/gtest.h>

#include <csignal>
#include <cstdlib>

#include "trireme/base/error.hpp"

namespace trireme::fault {
namespace {

class Fault : public testing::Test {
 protected:
  void TearDown() override {
    arm("");
    set_rank(-1);
    set_step(-1);
  }
};

TEST_F(Fault, IsInertUnlessArmed) {
  EXPECT_FALSE(armed());
  EXPECT_FALSE(point("step.begin"));
  arm("");
  EXPECT_FALSE(armed());
  EXPECT_FALSE(point("step.begin"));
}

TEST_F(Fault, ReadsTheEnvironmentOnce) {
  ASSERT_FALSE(armed());
  setenv("TRIREME_FAULT", "step.begin:nan", 1);
  EXPECT_FALSE(armed()) << "a library that writes to the environment would break a thread that reads it";
  EXPECT_FALSE(point("step.begin"));
  unsetenv("TRIREME_FAULT");
}

TEST_F(Fault, FiresAtItsPointRankAndStepOnly) {
  arm("grad.reduce:nan:2:5");
  EXPECT_TRUE(armed());
  set_rank(2);
  set_step(5);
  EXPECT_TRUE(point("grad.reduce"));
  EXPECT_FALSE(point("step.begin"));
  set_step(6);
  EXPECT_FALSE(point("grad.reduce"));
  set_step(5);
  set_rank(1);
  EXPECT_FALSE(point("grad.reduce"));
}

TEST_F(Fault, TakesStarAndNothingAsAny) {
  set_rank(3);
  set_step(7);
  arm("a:nan:*:7, *:throw:1");
  EXPECT_TRUE(point("a"));
  EXPECT_FALSE(point("b"));
  arm("a:nan::7");
  EXPECT_TRUE(point("a"));
  arm("*:nan");
  EXPECT_TRUE(point("anything"));
}

TEST_F(Fault, ThrowsExitsAndKills) {
  arm("a:throw");
  EXPECT_THROW((void)point("a"), BugError);
  arm("a:exit");
  EXPECT_EXIT((void)point("a"), testing::ExitedWithCode(1), "");
  arm("a:kill");
  EXPECT_EXIT((void)point("a"), testing::KilledBySignal(SIGKILL), "");
}

TEST_F(Fault, RefusesWhatDoesNotParse) {
  for (const char* text : {"a", "a:explode", ":kill", "a:kill:x", "a:kill:1:2:3", "a:kill,", "a:kill:1x"}) {
    arm(text);
    EXPECT_THROW((void)point("b"), ConfigError) << text;
  }
}

}  // namespace
}  // namespace trireme::fault
