// SPDX-License-Identifier: Apache-2.0
#include "trireme/supervise/start_signals.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <optional>

#include "trireme/supervise/stop_signals.hpp"

namespace trireme::supervise {
namespace {

/// The test program starts again in a death test, with one thread: OpenMP's, which began before signals were blocked,
/// would take the signal.
class StartSignalsTest : public testing::Test {
 protected:
  void SetUp() override {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    ::setenv("OMP_NUM_THREADS", "1", 1);
  }
};

TEST_F(StartSignalsTest, ATerminationEndsTheStartAlthoughItIsHeld) {
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

TEST_F(StartSignalsTest, LeaveTheSignalToTheTrainingAfterwards) {
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
