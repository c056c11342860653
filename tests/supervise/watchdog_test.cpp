// SPDX-License-Identifier: Apache-2.0
#include "trireme/supervise/watchdog.hpp"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <ctime>
#include <future>
#include <optional>
#include <thread>

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
  ASSERT_EQ(report_.wait_for(60s), std::future_status::ready);
  const std::string message = report_.get();
  EXPECT_NE(message.find("step 17"), std::string::npos) << message;
  EXPECT_NE(message.find("forward b3.mlp m0"), std::string::npos) << message;
  EXPECT_NE(message.find("comm.timeout_seconds"), std::string::npos) << message;
}

TEST_F(WatchdogTest, WatchesTheStartBeforeTheFirstStep) {
  const Watchdog watchdog(deadline(0.1), nullptr, "agreeing on the run file");
  ASSERT_EQ(report_.wait_for(60s), std::future_status::ready);
  EXPECT_EQ(report_.get().find("Hang: the start has been in \"agreeing on the run file\" for "), 0U);
}

/// Reports for twenty marks, 30 ms and more apart; nothing
/// if some were so late that a report may have been right.
std::optional<bool> reported_between_marks(double timeout_seconds) {
  std::atomic<bool> reported = false;
  Watchdog watchdog({.timeout_seconds = timeout_seconds, .on_hang = [&](const std::string&) { reported = true; }},
                    nullptr);
  mpi::Clock::time_point before = mpi::Clock::now();
  std::chrono::duration<double> longest(0);
  for (int i = 0; i < 20; ++i) {
    watchdog.mark("backward", i);
    const mpi::Clock::time_point now = mpi::Clock::now();
    longest = std::max<std::chrono::duration<double>>(longest, now - before);
    before = now;
    std::this_thread::sleep_for(30ms);
  }
  watchdog.rest();
  longest = std::max<std::chrono::duration<double>>(longest, mpi::Clock::now() - before);
  if (longest.count() > 0.9 * timeout_seconds) return std::nullopt;
  return reported;
}

TEST_F(WatchdogTest, IsQuietWhileMarksCome) {
  std::optional<bool> reported;
  while (!reported) reported = reported_between_marks(0.4);
  EXPECT_FALSE(*reported);
}

TEST_F(WatchdogTest, IsQuietWhileNothingIsExpected) {
  Watchdog watchdog(deadline(0.4), nullptr);
  EXPECT_EQ(report_.wait_for(500ms), std::future_status::timeout) << "before the first mark";
  watchdog.mark("backward", 3, 600);
  watchdog.rest();
  EXPECT_EQ(report_.wait_for(600ms), std::future_status::timeout) << "at rest";
}

TEST_F(WatchdogTest, WaitsWhileAnotherRankIsSeenAtWork) {
  mpi::Deadline patient = deadline(0.1);
  std::atomic<bool> at_work = true;
  const mpi::Clock::time_point begin = mpi::Clock::now();
  patient.last_progress = [&] { return at_work ? mpi::Clock::now() : begin; };
  Watchdog watchdog(patient, nullptr);
  watchdog.mark("exporting the weights", 3);
  EXPECT_EQ(report_.wait_for(500ms), std::future_status::timeout);
  at_work = false;
  ASSERT_EQ(report_.wait_for(60s), std::future_status::ready);
}

TEST_F(WatchdogTest, LeavesOutTimeInWhichTheProcessWasStopped) {
  constexpr double timeout_seconds = 2;
  Watchdog watchdog(deadline(timeout_seconds), nullptr, {}, /*detects_stops=*/true);
  std::this_thread::sleep_for(200ms);  // it ticks
  watchdog.mark("forward", 0);
  const pid_t child = ::fork();
  if (child == 0) {
    const timespec twice{.tv_sec = 4, .tv_nsec = 0};
    ::nanosleep(&twice, nullptr);
    ::kill(::getppid(), SIGCONT);
    ::_exit(0);
  }
  ::kill(::getpid(), SIGSTOP);
  ::waitpid(child, nullptr, 0);
  EXPECT_FALSE((mpi::Deadline{.timeout_seconds = timeout_seconds}.passed(watchdog.marked()))) << "a wait's deadline";
  EXPECT_EQ(report_.wait_for(300ms), std::future_status::timeout);
  ASSERT_EQ(report_.wait_for(60s), std::future_status::ready) << "what follows counts";
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
  ASSERT_EQ(report_.wait_for(60s), std::future_status::ready);
  EXPECT_NE(report_.get().find("broadcast #1"), std::string::npos);
}

}  // namespace
}  // namespace trireme::supervise
