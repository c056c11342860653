// SPDX-License-Identifier: Apache-2.0
#include "trireme/train/time_limit.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <cstdlib>
#include <string>

namespace trireme::train {
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
  EXPECT_FALSE(ending_in(hour, {}).reached(60, 60));
  EXPECT_TRUE(ending_in(hour, {}).reached(1300, 60)) << "this step would fit, another one would not";
  EXPECT_TRUE(ending_in(hour, {}).reached(60, 3000));
  EXPECT_TRUE(ending_in(-5, {}).reached(0, 0)) << "it is over already";
}

TEST(TimeLimit, StopsAtLeastAsEarlyAsAsked) {
  EXPECT_FALSE(ending_in(700, 600).reached(10, 10));
  EXPECT_TRUE(ending_in(600, 600).reached(10, 10)) << "the save would begin later than that";
  EXPECT_TRUE(ending_in(90, 10).reached(10, 100)) << "asked for less than a save takes";
}

TEST(TimeLimit, GuessesTheFirstSaveByItsBytes) {
  EXPECT_FALSE(ending_in(100, {}).reached(1, 0));
  EXPECT_TRUE(ending_in(100, {}, 20'000'000'000).reached(1, 0));
  EXPECT_FALSE(ending_in(100, {}, 20'000'000'000).reached(1, 10)) << "a save was measured";
}

TEST(TimeLimit, IsNeverReachedWhereNoneIsKnown) {
  for (const char* text : {"", "soon", "-1"}) {
    if (*text != '\0') setenv("SLURM_JOB_END_TIME", text, 1);
    const TimeLimit limit(60, 1 << 30);
    unsetenv("SLURM_JOB_END_TIME");
    EXPECT_FALSE(limit.reached(1e6, 1e6)) << text;
    EXPECT_TRUE(std::isinf(limit.left())) << text;
  }
}

}  // namespace
}  // namespace trireme::train
