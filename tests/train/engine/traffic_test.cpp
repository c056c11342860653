// SPDX-License-Identifier: Apache-2.0
#include "trireme/train/engine/traffic.hpp"

#include <gtest/gtest.h>

namespace trireme::train {
namespace {

using schedule::Lane;

void gather(StepTraffic& traffic, std::int64_t bytes) {
  traffic.counters(Lane::gather).add("shard", "all_gather", {bytes});
}
void reduce(StepTraffic& traffic, std::int64_t bytes) {
  traffic.counters(Lane::reduce).add("shard", "reduce_scatter", {bytes});
}
void end(StepTraffic& traffic, std::int64_t step) {
  for (const Lane lane : {Lane::compute, Lane::gather, Lane::reduce}) traffic.lane_ended(lane, step);
}

std::int64_t bytes(const comm::TrafficTable& table, const char* operation) {
  return table.at("shard").find(operation)->second.bytes.value;
}

TEST(StepTraffic, AddsUpTheLanesOfAStep) {
  StepTraffic traffic;
  gather(traffic, 3);
  gather(traffic, 4);
  reduce(traffic, 5);
  end(traffic, 0);
  const comm::TrafficTable table = traffic.take(0);
  EXPECT_EQ(bytes(table, "all_gather"), 7);
  EXPECT_EQ(table.at("shard").find("all_gather")->second.calls, 2);
  EXPECT_EQ(bytes(table, "reduce_scatter"), 5);
}

TEST(StepTraffic, GivesWhatALaneMovesAheadToTheStepItIsFor) {
  StepTraffic traffic;
  gather(traffic, 1);
  traffic.lane_ended(Lane::gather, 0);
  gather(traffic, 20);  // runs ahead into step 1
  reduce(traffic, 2);
  traffic.lane_ended(Lane::reduce, 0);
  traffic.lane_ended(Lane::compute, 0);
  EXPECT_EQ(bytes(traffic.take(0), "all_gather"), 1);
  reduce(traffic, 30);
  end(traffic, 1);
  const comm::TrafficTable second = traffic.take(1);
  EXPECT_EQ(bytes(second, "all_gather"), 20);
  EXPECT_EQ(bytes(second, "reduce_scatter"), 30);
}

TEST(StepTraffic, CountsNothingThatWasMovedBetweenSteps) {
  StepTraffic traffic;
  gather(traffic, 1);
  end(traffic, 0);
  (void)traffic.take(0);
  gather(traffic, 500);  // an evaluation
  traffic.rest();
  gather(traffic, 2);
  end(traffic, 1);
  EXPECT_EQ(bytes(traffic.take(1), "all_gather"), 2);
}

TEST(StepTraffic, KeepsCopiesApartByStepAndUnderHost) {
  StepTraffic traffic;
  traffic.copied("upload", {7}, 1);
  traffic.copied("reload", {5}, 0);
  end(traffic, 0);
  EXPECT_EQ(traffic.take(0).at("host").size(), 1U);
  traffic.copied("upload", {4}, 1);
  end(traffic, 1);
  const comm::TrafficTable table = traffic.take(1);
  EXPECT_EQ(table.at("host").find("upload")->second, (comm::Traffic{.bytes = {11}, .calls = 2}));
}

}  // namespace
}  // namespace trireme::train
