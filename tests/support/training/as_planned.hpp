// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <span>
#include <string>
#include <string_view>

#include "trireme/comm/counters.hpp"
#include "trireme/executor/executor.hpp"
#include "trireme/planner/replay.hpp"
#include "trireme/train/engine/job.hpp"

/// What a rank of a job counted, held to what is planned for it.
namespace trireme::test {

/// The sizes of this rank's plan, with the rows for experts that a step had.
inline planner::ReplayOptions plan_options(const config::RunConfig& config, const train::Job& job,
                                           std::span<const executor::RowsMoved> rows = {}) {
  planner::ReplayOptions options = planner::replay_options_of(config, job.resolved());
  options.shard_rank = job.mesh().shard_of(job.at());
  for (const executor::RowsMoved& moved : rows)
    options.recorded_rows[{moved.block, moved.microbatch}] = {
        .received = moved.received, .sent = moved.sent, .fetched = moved.fetched};
  return options;
}

/// Every operation that is planned was counted, with its bytes and calls. except: a group that is not compared.
inline void expect_traffic(const comm::TrafficTable& counted, const planner::Traffic& planned,
                           std::string_view except = "") {
  for (const auto& [group, operations] : planned) {
    if (group == except) continue;
    for (const auto& [operation, moved] : operations) {
      const auto of_group = counted.find(group);
      ASSERT_TRUE(of_group != counted.end() && of_group->second.contains(operation)) << group << " " << operation;
      const comm::Traffic& found = of_group->second.find(operation)->second;
      EXPECT_EQ(found.bytes, moved.bytes) << group << " " << operation;
      EXPECT_EQ(found.calls, moved.calls) << group << " " << operation;
    }
  }
}

}  // namespace trireme::test
