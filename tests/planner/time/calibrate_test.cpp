// SPDX-License-Identifier: Apache-2.0
#include "trireme/planner/time/calibrate.hpp"

#include <gtest/gtest.h>

#include "runs.hpp"
#include "trireme/planner/time/predict.hpp"

namespace trireme::planner {
namespace {

config::RunConfig cpu_run(std::int64_t layers, std::int64_t hidden, std::int64_t tokens) {
  config::RunConfig config = testing::small_run();
  config.model.hidden_size = hidden;
  config.model.intermediate_size = 2 * hidden;
  config.model.vocab_size = hidden;
  config.model.layers = layers;
  config.data.seq_len = tokens;
  config.batch = {.global = 1, .micro = 1};
  config.device.type = config::DeviceType::cpu;
  return config;
}

Machine truth() {
  Machine machine = load_machine("local");
  machine.layer_seconds = 3e-4;
  machine.step_seconds = 1.5e-3;
  machine.memory_bandwidth = 6.5e9;
  return machine;
}

TimedStep timed(const config::RunConfig& config) {
  return {config, predict(config, 1, truth(), {.percentiles = false}).expected.seconds};
}

TEST(Calibration, FindsTheNumbersBehindThreeSteps) {
  const Machine found = with_steps(load_machine("local"), timed(cpu_run(2, 64, 16)), timed(cpu_run(10, 64, 16)),
                                   timed(cpu_run(4, 256, 512)));
  EXPECT_NEAR(found.layer_seconds, truth().layer_seconds, 1e-3 * truth().layer_seconds);
  EXPECT_NEAR(found.step_seconds, truth().step_seconds, 1e-3 * truth().step_seconds);
  EXPECT_NEAR(found.memory_bandwidth, truth().memory_bandwidth, 1e-3 * truth().memory_bandwidth);
}

TEST(Calibration, NoiseThatWouldMakeANumberNegativeMakesItZero) {
  TimedStep shallow = timed(cpu_run(2, 64, 16)), deep = timed(cpu_run(10, 64, 16)), wide = timed(cpu_run(4, 256, 512));
  deep.seconds = shallow.seconds;
  wide.seconds = 1e-6;
  const Machine found = with_steps(load_machine("local"), shallow, deep, wide);
  EXPECT_EQ(found.layer_seconds, 0);
  EXPECT_GE(found.step_seconds, 0);
  EXPECT_LE(found.memory_bandwidth, 1.001e13);
  EXPECT_NO_THROW((void)parse_machine(print_machine(found), "local.toml"));
}

TEST(Calibration, FindsLatencyAndBandwidthOfALink) {
  Machine machine = truth();
  machine.inside = {.latency = 4e-5, .bandwidth = 3e9};
  std::vector<TimedCollective> collectives;
  const Group all{.ranks = 4, .per_node = 4};
  for (const double bytes : {2e4, 1e6, 3e7}) {
    const double ring = ring_seconds(machine, all, bytes);
    collectives.push_back({false, bytes, ring});
    collectives.push_back({true, bytes, ring + bytes * 1.25 / machine.memory_bandwidth});
  }
  const Link found = fitted_link(collectives, 4, machine);
  EXPECT_NEAR(found.latency, 4e-5, 1e-9);
  EXPECT_NEAR(found.bandwidth, 3e9, 1e4);
}

TEST(Calibration, TheSpreadStaysWithinTheLimitsOfAFile) {
  const Spread wide = spread_of({0.5, 0.9, 0.95, 1, 1, 1, 1.1, 1.2, 1.5, 3});
  EXPECT_DOUBLE_EQ(wide.p10, 0.5);
  EXPECT_DOUBLE_EQ(wide.p90, 1.5);
  const Spread odd = spread_of({1.2, 1.2, 1.2});
  EXPECT_DOUBLE_EQ(odd.p10, 1);
}

TEST(OneThread, AStepOfACpuRankTakesTheSumOfItsOps) {
  config::RunConfig config = cpu_run(3, 64, 64);
  config.batch = {.global = 8, .micro = 1};
  Machine machine = truth();
  const auto seconds = [&] { return predict(config, 4, machine, {.percentiles = false}).expected; };
  const StepTime beside = seconds();
  machine.lane_threads = 0;
  const StepTime alone = seconds();
  double sum = machine.step_seconds;
  for (const double busy : alone.busy) sum += busy;
  EXPECT_NEAR(alone.seconds, sum, 1e-9);
  EXPECT_GT(alone.seconds, 1.05 * beside.seconds);
  config.comm.lane_threads = true;  // the run file decides
  EXPECT_DOUBLE_EQ(seconds().seconds, beside.seconds);
  config.device.type = config::DeviceType::cuda;
  config.comm.lane_threads = std::nullopt;
  EXPECT_LT(seconds().seconds, alone.seconds);
}

TEST(OneRank, CopiesOnlyShardsThatComeFromTheHostBetweenOps) {
  config::RunConfig config = cpu_run(3, 64, 64);
  config.batch = {.global = 2, .micro = 1};
  Machine machine = truth();
  machine.lane_threads = 1;
  const auto seconds = [&] { return predict(config, 1, machine, {.percentiles = false}).expected; };
  const auto gathers = static_cast<std::size_t>(schedule::Lane::gather);
  EXPECT_EQ(seconds().busy[gathers], 0) << "read where they lie";
  config.memory.offload = config::Offload::parameters;
  const StepTime step = seconds();
  EXPECT_GT(step.busy[gathers], 0);
  double sum = machine.step_seconds;
  for (const double busy : step.busy) sum += busy;
  EXPECT_NEAR(step.seconds, sum, 1e-9);
  machine.host_bandwidth /= 2;
  EXPECT_NEAR(seconds().busy[gathers], 2 * step.busy[gathers], 1e-12);
  config.device.type = config::DeviceType::cuda;
  EXPECT_EQ(seconds().busy[gathers], 0);
}

}  // namespace
}  // namespace trireme::planner
