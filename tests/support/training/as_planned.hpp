// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <span>
#include <string>
#include <string_view>

#include "trireme/comm/counters.hpp"
#include "trireme/device/memory.hpp"
#include "trireme/executor/executor.hpp"
#include "trireme/model/product_workspace.hpp"
#include "trireme/planner/replay.hpp"
#include "trireme/train/engine/job.hpp"

/// Compares the counters of a rank of a job with its plan.
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

/// Libtorch's planned workspace for products on a GPU: per stream with products, kept until the process ends.
inline Bytes libtorch_workspace(DType compute, const planner::Memory& planned) {
  return planned.product_workspace - (compute == DType::bf16 ? model::product_workspace : Bytes{0});
}

/// Workspace on a GPU that a job of a small model had: what its products in bf16 keep, what is planned of the largest
/// stage, and `little` else. libtorch's is there too, or not: on a stream that had it before, or where the GPU is
/// simulated.
inline void expect_gpu_workspace(DType compute, Bytes found, const planner::Memory& planned,
                                 Bytes little = Bytes{512 << 10}) {
  const Bytes of_libtorch = libtorch_workspace(compute, planned), kept = planned.product_workspace - of_libtorch;
  const Bytes most = kept + planned.workspace + little;
  EXPECT_GE(found, kept);
  EXPECT_TRUE(found <= most || (found >= kept + of_libtorch && found <= most + of_libtorch))
      << to_text(found) << ", planned " << to_text(kept) << ", " << to_text(of_libtorch) << " and "
      << to_text(planned.workspace) << " for " << planned.workspace_of;
}

/// Compares the increase of every category's peak since `before`, on the device and on the host, except workspace.
inline void expect_memory(const device::MemoryUse& before, const planner::Memory& planned, const train::Job& job) {
  using device::Category, device::Space;
  const device::MemoryUse use = device::memory_use();
  const auto expect = [&](Space space, Category category, Bytes bytes) {
    EXPECT_EQ(use[space].peak[category] - before[space].current[category], bytes)
        << to_text(category) << (space == Space::host ? " on the host" : "");
  };
  expect(Space::device, Category::parameters_sharded, planned.parameters_sharded);
  expect(Space::device, Category::parameters_unsharded, planned.parameters_unsharded);
  expect(Space::device, Category::parameters_resharded, planned.parameters_resharded);
  expect(Space::device, Category::gradients_sharded, planned.gradients_sharded);
  expect(Space::device, Category::gradients_unsharded, planned.gradients_unsharded);
  expect(Space::device, Category::optimizer, planned.optimizer);
  expect(Space::device, Category::activations, planned.activations);
  // Slots between pipeline ranks, and what transports bring bytes together in.
  expect(Space::device, Category::communication, planned.communication + job.staging());
  expect(Space::host, Category::parameters_sharded, planned.host.parameters_sharded);
  expect(Space::host, Category::gradients_sharded, planned.host.gradients_sharded);
  expect(Space::host, Category::optimizer, planned.host.optimizer);
  expect(Space::host, Category::activations, planned.host.activations);
}

}  // namespace trireme::test
