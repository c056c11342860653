// SPDX-License-Identifier: Apache-2.0
#include "trireme/supervise/time_limit.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <cstdlib>
#include <string>

#include "trireme/base/error.hpp"

namespace trireme::supervise {
namespace {

/// A job that ends in `seconds`.
TimeLimit ending_in(double seconds, std::optional<double> before_limit, std::int64_t bytes = 0) {
  const double now = std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  setenv("SLURM_JOB_END_TIME", std::to_string(static_cast<std::int64_t>(now + seconds)).c_str(), 1);
  const TimeLimit limit(before_limit, bytes);
  unsetenv("SLURM_JOB_END_TIME");
  return limit;
}

TEST(TimeLimit, HoldsAnotherStepAndASave) {
  constexpr double hour = 3600;
  EXPECT_FALSE(ending_in(hour, {}).reached({.step = 60, .save = 60}));
  EXPECT_TRUE(ending_in(hour, {}).reached({.step = 1300, .save = 60})) << "this step would fit, another one would not";
  EXPECT_TRUE(ending_in(hour, {}).reached({.step = 60, .save = 3000}));
}

TEST(TimeLimit, HoldsTheBatchOfAnEvaluationAndAnExportToo) {
  constexpr double hour = 3600;
  EXPECT_FALSE(ending_in(hour, {}).reached({.step = 60, .save = 60, .evaluation_batch = 60, .exporting = 60}));
  EXPECT_TRUE(ending_in(hour, {}).reached({.step = 60, .save = 60, .evaluation_batch = 1300}));
  EXPECT_TRUE(ending_in(hour, {}).reached({.step = 60, .save = 60, .exporting = 3000}));
}

TEST(TimeLimit, StopsAtLeastAsEarlyAsAsked) {
  EXPECT_FALSE(ending_in(700, 600).reached({.step = 10, .save = 10}));
  EXPECT_TRUE(ending_in(610, 600).reached({.step = 10, .save = 10})) << "the save would begin later than that";
  EXPECT_TRUE(ending_in(90, 10).reached({.step = 10, .save = 100})) << "asked for less than a save takes";
}

TEST(TimeLimit, GuessesTheFirstSaveByItsBytes) {
  EXPECT_FALSE(ending_in(100, {}).reached({.step = 1, .save = 0}));
  EXPECT_TRUE(ending_in(100, {}, 20'000'000'000).reached({.step = 1, .save = 0}));
  EXPECT_FALSE(ending_in(100, {}, 20'000'000'000).reached({.step = 1, .save = 10})) << "a save was measured";
}

TEST(TimeLimit, IsNeverReachedWhereNoneIsKnown) {
  for (const char* text : {"", "soon", "-1", "NaN", "inf", "1e9", "4e9", "0x7fffffff", "4102444800 ", "4102444800.5"}) {
    if (*text != '\0') setenv("SLURM_JOB_END_TIME", text, 1);
    const TimeLimit limit(60, 1 << 30);
    unsetenv("SLURM_JOB_END_TIME");
    EXPECT_FALSE(limit.reached({.step = 1e6, .save = 1e6})) << text;
    EXPECT_TRUE(std::isinf(limit.left())) << text;
  }
}

TEST(TimeLimit, AnEndThatIsPastAtTheStartIsOfAnotherJob) {
  for (const double seconds : {-2.0, -78186.0}) {
    EXPECT_FALSE(ending_in(seconds, {}).reached({.step = 1e6, .save = 1e6}));
    EXPECT_FALSE(ending_in(seconds, 60).reached({.step = 1e6, .save = 1e6}));
    EXPECT_TRUE(std::isinf(ending_in(seconds, {}).left()));
  }
}

TEST(TimeLimit, AJobThatIsShorterThanTheTimeBeforeItsLimitIsRefused) {
  EXPECT_THROW((void)ending_in(7000, 10800), ConfigError);
  EXPECT_NO_THROW((void)ending_in(7000, 6900));
}

}  // namespace
}  // namespace trireme::supervise

// Fault, stops: `train.stop_before_limit_seconds` above the time left -> exit code 2
