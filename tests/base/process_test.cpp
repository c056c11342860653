// SPDX-License-Identifier: Apache-2.0
#include "trireme/base/process.hpp"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

namespace trireme {
namespace {

TEST(Process, HasEndedWhenNothingOfItIsLeftThatCouldRun) {
  EXPECT_FALSE(process_has_ended(::getpid()));
  EXPECT_FALSE(process_has_ended(1));
  EXPECT_TRUE(process_has_ended(2147483000));  // no system gives out so high a number
  const pid_t child = ::fork();
  if (child == 0) ::_exit(0);
  siginfo_t ended{};
  ASSERT_EQ(::waitid(P_PID, static_cast<id_t>(child), &ended, WEXITED | WNOWAIT), 0);
  ASSERT_EQ(::kill(child, 0), 0) << "its number is still there";
  EXPECT_TRUE(process_has_ended(child)) << "a zombie";
  ::waitpid(child, nullptr, 0);
  EXPECT_TRUE(process_has_ended(child));
}

TEST(Process, StartsOnce) {
  EXPECT_FALSE(process_start(::getpid()).empty());
  EXPECT_EQ(process_start(::getpid()), process_start(::getpid()));
  EXPECT_EQ(process_start(2147483000), "");
}

}  // namespace
}  // namespace trireme
