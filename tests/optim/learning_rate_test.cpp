// SPDX-License-Identifier: Apache-2.0
#include "trireme/optim/learning_rate.hpp"

#include <gtest/gtest.h>

namespace trireme::optim {
namespace {

using config::LrSchedule;

constexpr double lr = 1e-3;
constexpr std::int64_t steps = 100;

double at(const config::Lr& schedule, std::int64_t step) { return learning_rate(schedule, lr, step, steps); }

TEST(LearningRate, WarmsUpFromOneStepsShareToTheFullRate) {
  for (const LrSchedule schedule : {LrSchedule::cosine, LrSchedule::linear, LrSchedule::constant, LrSchedule::wsd}) {
    const config::Lr warm{.schedule = schedule, .warmup_steps = 10};
    EXPECT_DOUBLE_EQ(at(warm, 0), 1e-4);
    EXPECT_DOUBLE_EQ(at(warm, 4), 5e-4);
    EXPECT_DOUBLE_EQ(at(warm, 9), 1e-3);
    EXPECT_DOUBLE_EQ(at(warm, 10), 1e-3);
  }
}

TEST(LearningRate, CosineFallsFromTheFullRateToTheLeast) {
  const config::Lr cosine{.schedule = LrSchedule::cosine, .warmup_steps = 20, .min_ratio = 0.1};
  EXPECT_DOUBLE_EQ(at(cosine, 20), 1e-3);
  EXPECT_DOUBLE_EQ(at(cosine, 40), 1e-4 + 4.5e-4 * 1.7071067811865475);
  EXPECT_DOUBLE_EQ(at(cosine, 60), 5.5e-4);
  EXPECT_DOUBLE_EQ(at(cosine, 99), 1.0034693369167469e-4);
  EXPECT_DOUBLE_EQ(at(cosine, 100), 1e-4);
}

TEST(LearningRate, LinearFallsEvenly) {
  const config::Lr linear{.schedule = LrSchedule::linear, .min_ratio = 0.5};
  EXPECT_DOUBLE_EQ(at(linear, 0), 1e-3);
  EXPECT_DOUBLE_EQ(at(linear, 50), 7.5e-4);
  EXPECT_DOUBLE_EQ(at(linear, 99), 5.05e-4);
}

TEST(LearningRate, WsdHoldsAndThenFallsEvenly) {
  const config::Lr wsd{.schedule = LrSchedule::wsd, .warmup_steps = 10, .wsd_decay_steps = 20, .min_ratio = 0.1};
  EXPECT_DOUBLE_EQ(at(wsd, 10), 1e-3);
  EXPECT_DOUBLE_EQ(at(wsd, 80), 1e-3);
  EXPECT_DOUBLE_EQ(at(wsd, 81), 1e-3 - 9e-4 / 20);
  EXPECT_DOUBLE_EQ(at(wsd, 90), 5.5e-4);
  EXPECT_DOUBLE_EQ(at(wsd, 100), 1e-4);
}

TEST(LearningRate, WsdWithoutDecayHoldsToTheEnd) {
  const config::Lr wsd{.schedule = LrSchedule::wsd, .wsd_decay_steps = 0};
  EXPECT_DOUBLE_EQ(at(wsd, 0), 1e-3);
  EXPECT_DOUBLE_EQ(at(wsd, 99), 1e-3);
}

TEST(LearningRate, ConstantStaysEvenBeyondTheEndStep) {
  const config::Lr constant{.schedule = LrSchedule::constant, .warmup_steps = 2, .end_step = 50};
  EXPECT_DOUBLE_EQ(at(constant, 3), 1e-3);
  EXPECT_DOUBLE_EQ(at(constant, 99), 1e-3);
}

TEST(LearningRate, IsTheLeastFromTheEndStepOn) {
  for (const LrSchedule schedule : {LrSchedule::cosine, LrSchedule::linear, LrSchedule::wsd}) {
    const config::Lr early{.schedule = schedule, .end_step = 60, .wsd_decay_steps = 10, .min_ratio = 0.2};
    EXPECT_GT(at(early, 59), 2e-4);
    EXPECT_DOUBLE_EQ(at(early, 60), 2e-4);
    EXPECT_DOUBLE_EQ(at(early, 99), 2e-4);
  }
}

TEST(LearningRate, FollowsAnEndStepBeyondTheRun) {
  const config::Lr late{.schedule = LrSchedule::linear, .end_step = 200, .min_ratio = 0};
  EXPECT_DOUBLE_EQ(at(late, 100), 5e-4);
}

TEST(LearningRate, OfAFewStepsIsThatOfTheFirstStepsOfALongRun) {
  for (const LrSchedule schedule : {LrSchedule::cosine, LrSchedule::linear, LrSchedule::wsd, LrSchedule::constant}) {
    const config::Lr lr{.schedule = schedule, .warmup_steps = 2000, .wsd_decay_steps = 500};
    for (const std::int64_t step : {0, 1, 2})
      EXPECT_DOUBLE_EQ(optim::learning_rate(lr, 1e-3, step, 3), optim::learning_rate(lr, 1e-3, step, 100'000));
  }
  const config::Lr wsd{.schedule = LrSchedule::wsd, .warmup_steps = 10, .wsd_decay_steps = 500};
  EXPECT_DOUBLE_EQ(optim::learning_rate(wsd, 1e-3, 50, 100), 1e-3) << "no decay has begun";
}

TEST(LearningRate, WarmupThatReachesTheEndIsFollowedByTheLeast) {
  const config::Lr warm{.schedule = LrSchedule::cosine, .warmup_steps = 100, .min_ratio = 0.1};
  EXPECT_DOUBLE_EQ(at(warm, 99), 1e-3);
  EXPECT_DOUBLE_EQ(at(warm, 100), 1e-4);
}

}  // namespace
}  // namespace trireme::optim
