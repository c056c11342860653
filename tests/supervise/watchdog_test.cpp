// SPDX-License-Identifier: Apache-2.0
#include "trireme/supervise/watchdog.hpp"

#include <gtest/gtest.h>

#include <future>

namespace trireme::supervise {
namespace {

using namespace std::chrono_literals;

class WatchdogTest : public testing::Test {
 protected:
  mpi::Deadline deadline(double seconds) {
    return {.timeout_seconds = seconds,
            .on_hang = [this](const std::string& message) { reported_.set_value(message); }};
  }
  std::promise<std::string> reported_;
  std::future<std::string> report_ = reported_.get_future();
};

TEST_F(WatchdogTest, NamesTheSectionThatMadeNoProgress) {
  Watchdog watchdog(deadline(0.1), nullptr);
  watchdog.mark("forward b3.mlp m0", 17);
  ASSERT_EQ(report_.wait_for(5s), std::future_status::ready);
  const std::string message = report_.get();
  EXPECT_NE(message.find("step 17"), std::string::npos) << message;
  EXPECT_NE(message.find("forward b3.mlp m0"), std::string::npos) << message;
  EXPECT_NE(message.find("comm.timeout_seconds"), std::string::npos) << message;
}

TEST_F(WatchdogTest, WatchesTheStartBeforeTheFirstStep) {
  const Watchdog watchdog(deadline(0.1), nullptr, "agreeing on the run file");
  ASSERT_EQ(report_.wait_for(5s), std::future_status::ready);
  EXPECT_EQ(report_.get().find("Hang: the start has been in \"agreeing on the run file\" for "), 0U);
}

TEST_F(WatchdogTest, IsQuietWhileMarksComeAndWhileNothingIsExpected) {
  Watchdog watchdog(deadline(0.4), nullptr);
  EXPECT_EQ(report_.wait_for(500ms), std::future_status::timeout) << "before the first mark";
  for (int i = 0; i < 20; ++i) {
    watchdog.mark("backward", i);
    EXPECT_EQ(report_.wait_for(30ms), std::future_status::timeout);
  }
  watchdog.rest();
  EXPECT_EQ(report_.wait_for(600ms), std::future_status::timeout) << "at rest";
}

TEST_F(WatchdogTest, WaitsWhileAnotherRankIsSeenAtWork) {
  mpi::Deadline patient = deadline(0.1);
  const mpi::Clock::time_point end = mpi::Clock::now() + 600ms;
  patient.last_progress = [end] { return std::min(mpi::Clock::now(), end); };
  Watchdog watchdog(patient, nullptr);
  watchdog.mark("exporting the weights", 3);
  EXPECT_EQ(report_.wait_for(500ms), std::future_status::timeout);
  ASSERT_EQ(report_.wait_for(5s), std::future_status::ready);
}

TEST_F(WatchdogTest, ATimeBeyondAllCountingNeverPasses) {
  for (const double seconds : {1e10, 1e300}) {
    Watchdog watchdog(deadline(seconds), nullptr, "start");
    EXPECT_EQ(report_.wait_for(100ms), std::future_status::timeout) << seconds;
    watchdog.mark("forward", 0, 1e300);
    EXPECT_EQ(report_.wait_for(1200ms), std::future_status::timeout) << seconds;
  }
}

TEST_F(WatchdogTest, GivesExtraTimeWhereItIsAskedFor) {
  Watchdog watchdog(deadline(0.05), nullptr);
  watchdog.mark("first step", 0, 60);
  EXPECT_EQ(report_.wait_for(300ms), std::future_status::timeout);
}

TEST_F(WatchdogTest, FindsACollectiveThatHangsInsideMpi) {
  mpi::FlightRecorder recorder;
  recorder.add_lane("world/control").begin("broadcast", {4});
  const Watchdog watchdog(deadline(0.1), &recorder);
  ASSERT_EQ(report_.wait_for(5s), std::future_status::ready);
  EXPECT_NE(report_.get().find("broadcast #1"), std::string::npos);
}

}  // namespace
}  // namespace trireme::supervise
