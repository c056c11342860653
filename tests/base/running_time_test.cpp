// SPDX-License-Identifier: Apache-2.0
#include "trireme/base/running_time.hpp"

#include <gtest/gtest.h>

#include <thread>

namespace trireme {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point since) { return std::chrono::duration<double>(Clock::now() - since).count(); }

TEST(RunningTime, IsTheClocksWithoutTicks) {
  const Clock::time_point begin = Clock::now();
  std::this_thread::sleep_for(300ms);
  EXPECT_GE(running_seconds(begin), 0.3);
}

TEST(RunningTime, LeavesOutATimeWithoutTicksBeforeAndAfterItsEndIsNoticed) {
  const Clock::time_point before = Clock::now();
  RunningClock clock;
  clock.tick(10ms);
  std::this_thread::sleep_for(1s);  // nothing ticks: as if the process had been stopped
  EXPECT_LT(running_seconds(before), seconds_since(before) - 0.9) << "before a tick";
  clock.tick(10ms);
  EXPECT_LT(running_seconds(before), seconds_since(before) - 0.9);
  EXPECT_LT(running_seconds(Clock::now() - 500ms), 0.4) << "began within the stop";
  const Clock::time_point after = Clock::now();
  std::this_thread::sleep_for(1ms);
  const double running = running_seconds(after);
  EXPECT_GE(running, 0.001) << "later times are not shortened";
  EXPECT_LE(running, seconds_since(after));
}

TEST(RunningTime, CountsTicksThatAreALittleLate) {
  RunningClock clock;
  const Clock::time_point begin = Clock::now();
  for (int i = 0; i < 4; ++i) {
    clock.tick(1s);
    std::this_thread::sleep_for(50ms);
  }
  EXPECT_GE(running_seconds(begin), 0.2);
}

TEST(RunningTime, ForgetsItsStopsWithTheClock) {
  {
    RunningClock clock;
    clock.tick(10ms);
  }
  const Clock::time_point begin = Clock::now();
  std::this_thread::sleep_for(400ms);
  EXPECT_GE(running_seconds(begin), 0.4);
}

}  // namespace
}  // namespace trireme
