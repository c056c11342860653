// SPDX-License-Identifier: Apache-2.0
#include "trireme/supervise/start_signals.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <optional>

#include "trireme/supervise/stop_signals.hpp"

namespace trireme::supervise {
namespace {

TEST(StartSignals, ATerminationEndsTheStartAlthoughItIsHeld) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        block_stop_signals();
        const StartSignals start;
        ::kill(::getpid(), SIGTERM);
        ::sleep(30);
        ::_exit(0);
      },
      testing::KilledBySignal(SIGTERM), "");
}

TEST(StartSignals, LeaveTheSignalToTheTrainingAfterwards) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        block_stop_signals();
        { const StartSignals start; }
        ::kill(::getpid(), SIGTERM);
        const StopSignals stop;
        ::_exit(StopSignals::received());
      },
      testing::ExitedWithCode(SIGTERM), "");
}

}  // namespace
}  // namespace trireme::supervise
