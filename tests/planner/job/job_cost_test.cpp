// SPDX-License-Identifier: Apache-2.0
#include "trireme/planner/job/job_cost.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "../time/runs.hpp"
#include "trireme/base/error.hpp"

namespace trireme::planner {
namespace {

using ::testing::HasSubstr;

TEST(ParseTokens, TakesUnitsAndRefusesTheRest) {
  EXPECT_DOUBLE_EQ(parse_tokens("2T"), 2e12);
  EXPECT_DOUBLE_EQ(parse_tokens("15.6B"), 15.6e9);
  EXPECT_DOUBLE_EQ(parse_tokens("300M"), 3e8);
  EXPECT_DOUBLE_EQ(parse_tokens("1e12"), 1e12);
  for (const char* text : {"", "T", "2X", "2TB", "-1T", "0", "nan", "inf", "2 T", "1e30"})
    EXPECT_THROW((void)parse_tokens(text), ConfigError) << text;
}

/// Progress per second of a job that saves every t seconds, to first order.
double progress(double t, double save, double mtbf) { return t / (mtbf * (std::exp((t + save) / mtbf) - 1)); }

TEST(DalyInterval, MakesTheMostProgress) {
  for (const double save : {1., 30., 600.})
    for (const double mtbf : {3600., 86400.}) {
      const double best = progress(daly_interval(save, mtbf), save, mtbf);
      for (const double other : {0.7, 1.4})
        EXPECT_GT(best, progress(other * daly_interval(save, mtbf), save, mtbf)) << save << " " << mtbf;
    }
}

TEST(JobCost, AddsUpByHand) {
  Machine machine = load_machine("h100");
  machine.gpu_mtbf = 0;
  config::RunConfig config = testing::run_of(testing::llama_8b(), 64, 1);
  const double step = predict(config, 8, machine).expected.seconds;
  const double tokens = 1000 * 64 * 4096.0;
  JobCost cost = job_cost(config, 8, machine, tokens);
  EXPECT_EQ(cost.steps, 1000);
  EXPECT_DOUBLE_EQ(cost.seconds(), 1000 * step);
  EXPECT_EQ(cost.suggested, 0);

  config.train.eval_every = 100;
  config.train.eval_steps = 20;
  config.data.validation = {{.path = "held-out.bin"}};
  config.checkpoint.every = 250;
  config.checkpoint.async = false;
  cost = job_cost(config, 8, machine, tokens);
  EXPECT_NEAR(cost.save.bytes, 12 * 8.03e9, 0.01 * 12 * 8.03e9);
  EXPECT_DOUBLE_EQ(cost.save.written, cost.save.bytes / 5e9) << "one node writes";
  EXPECT_NEAR(cost.saves, 4 * cost.save.written, 1e-6);
  const double microbatch = step / 8;  // a third of it is forward, selective recompute and reduction the rest
  EXPECT_GT(cost.evaluation, 8 * 200 * 0.2 * microbatch) << "batches of batch.global: of eight microbatches";
  EXPECT_LT(cost.evaluation, 8 * 200 * 0.4 * microbatch);
  config.data.validation = {{.path = "books.bin", .set = "books"}, {.path = "code.bin", .set = "code"}};
  EXPECT_DOUBLE_EQ(job_cost(config, 8, machine, tokens).evaluation, 2 * cost.evaluation) << "every set";
  config.data.validation = {{.path = "held-out.bin"}};

  machine.gpu_mtbf = 8 * 3600 * 24;  // the job's: a day
  cost = job_cost(config, 8, machine, tokens);
  const double work = cost.training + cost.evaluation;
  const double each = machine.restart_seconds + 2 * cost.save.written + work / 4 / 2;
  EXPECT_NEAR(cost.failures, (work + cost.saves + cost.lost) / cost.mtbf, 1e-9);
  EXPECT_NEAR(cost.lost, cost.failures * each, 1e-6);
}

TEST(JobCost, SuggestsAnIntervalThatNoOtherBeatsByMuch) {
  const Machine machine = load_machine("h100");
  config::RunConfig config = testing::run_of(testing::llama_70b(), 4096, 1);
  config.mesh.replicate = 8;
  for (const bool async : {false, true}) {
    config.checkpoint.async = async;
    config.checkpoint.every = 0;
    const JobCost best = job_cost(config, 2048, machine, 2e12);
    ASSERT_GT(best.suggested, 0);
    EXPECT_GE(best.most, best.suggested);
    config.checkpoint.every = best.most;
    EXPECT_LE(job_cost(config, 2048, machine, 2e12).seconds(), 1.01 * best.seconds()) << async;
    EXPECT_DOUBLE_EQ(best.seconds(), best.suggested_seconds);
    for (const double factor : {0.5, 2.0}) {
      if (async && factor < 1) continue;  // as short as the file system allows
      config.checkpoint.every = std::max<std::int64_t>(1, std::llround(factor * static_cast<double>(best.suggested)));
      EXPECT_GE(job_cost(config, 2048, machine, 2e12).seconds(), 0.999 * best.seconds()) << async << " " << factor;
    }
    config.checkpoint.every = 20 * best.suggested;
    EXPECT_THAT(to_text(job_cost(config, 2048, machine, 2e12), machine), HasSubstr("% longer"));
  }
  EXPECT_THAT(to_text(job_cost(config, 2048, machine, 2e12), machine), HasSubstr("2T tokens on 2048 ranks"));
}

/// A copy to host memory stops training for milliseconds: Daly's interval alone would save every minute.
TEST(JobCost, AsynchronousSavesAreAsRareAsATenthOfAPercentAllows) {
  const Machine machine = load_machine("h100");
  config::RunConfig config = testing::run_of(testing::llama_8b(), 2048, 1);
  const JobCost best = job_cost(config, 512, machine, 2e12);
  const double step = best.step.expected.seconds, daly = daly_interval(best.save.stopped, best.mtbf);
  EXPECT_GE(static_cast<double>(best.suggested) * step, 4 * daly);
  EXPECT_GE(static_cast<double>(best.suggested) * step, 10 * best.save.written);
  const auto with = [&](double interval) {
    config.checkpoint.every = std::max<std::int64_t>(1, std::llround(interval / step));
    return job_cost(config, 512, machine, 2e12).seconds();
  };
  EXPECT_LE(best.seconds(), 1.0011 * with(std::max(daly, 10 * best.save.written)));
  EXPECT_GT(with(8 * static_cast<double>(best.suggested) * step), 1.001 * best.seconds());
}

TEST(JobCost, SuggestsNoShorterIntervalThanTheSiteAllows) {
  Machine machine = load_machine("h100");
  const config::RunConfig config = testing::run_of(testing::llama_70b(), 4096, 1);
  const JobCost any = job_cost(config, 2048, machine, 2e12);
  machine.least_save_interval = 7200;
  const JobCost rare = job_cost(config, 2048, machine, 2e12);
  EXPECT_GT(rare.suggested, any.suggested);
  EXPECT_GE(static_cast<double>(rare.suggested) * rare.step.expected.seconds, 7200);
  EXPECT_THAT(to_text(any, machine), HasSubstr("TB a day; Daly 2006"));
  EXPECT_EQ(to_text(any, machine).find("e+"), std::string::npos) << "no exponents";
}

TEST(JobCost, RefusesAJobThatMakesNoProgress) {
  Machine machine = load_machine("h100");
  machine.gpu_mtbf = 8 * 300;
  config::RunConfig config = testing::run_of(testing::llama_8b(), 64, 1);
  EXPECT_THROW((void)job_cost(config, 8, machine, 1e12), ConfigError) << "a restart takes 10 minutes, failures 5";
}

}  // namespace
}  // namespace trireme::planner
