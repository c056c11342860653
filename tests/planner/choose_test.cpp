// SPDX-License-Identifier: Apache-2.0
#include "trireme/planner/choose.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/base/error.hpp"
#include "trireme/planner/time/predict.hpp"

namespace trireme::planner {
namespace {

using config::SyncPolicy;
using ::testing::HasSubstr;

class ChooseSync : public ::testing::Test {
 protected:
  ChooseSync() {
    config_.model.vocab_size = 1024;
    config_.model.hidden_size = 256;
    config_.model.intermediate_size = 512;
    config_.model.layers = 8;
    config_.model.heads = 4;
    config_.data.seq_len = 16;
    config_.batch = {.global = 16, .micro = 1};
    config_.sync.policy = SyncPolicy::automatic;
    config_.precision.compute = DType::fp32;
  }
  Choice under(std::int64_t budget, const Machine& machine = load_machine("local")) {
    config_.memory.budget = Bytes{budget};
    return choose_sync(config_, model::build(config_.model), config::resolve(config_, 4), step_seconds_on(machine, 4));
  }
  config::RunConfig config_;
};

TEST_F(ChooseSync, TakesLeastTrafficWhereMemoryIsPlenty) {
  const config::Sync sync = under(1LL << 40).sync;
  EXPECT_EQ(sync.policy, SyncPolicy::deferred);
  EXPECT_EQ(sync.reshard_after_forward, 1);
  EXPECT_FALSE(sync.reshard_after_backward);
}

/// Walks the budget down: every candidate has a budget at which it is the one, and traffic only grows on the way.
TEST_F(ChooseSync, FreesMemoryStepByStep) {
  std::vector<std::pair<SyncPolicy, std::int64_t>> seen;
  for (std::int64_t budget = 200 << 20; budget > 0; budget -= 1 << 21) {
    std::pair<SyncPolicy, std::int64_t> taken;
    try {
      const config::Sync sync = under(budget).sync;
      taken = {sync.policy, sync.reshard_after_forward};
    } catch (const ConfigError&) {
      break;
    }
    if (seen.empty() || seen.back() != taken) seen.push_back(taken);
  }
  EXPECT_EQ(seen.front(), std::pair(SyncPolicy::deferred, std::int64_t{1}));
  EXPECT_EQ(seen.back(), std::pair(SyncPolicy::immediate, std::int64_t{0}));
}

TEST_F(ChooseSync, ReportsCandidatesAndReasons) {
  EXPECT_THAT(under(1LL << 40).reason, HasSubstr("taken: the fastest that fits"));
  try {
    (void)under(1000);
    FAIL() << "nothing fits 1000 bytes";
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), HasSubstr("no policy fits memory.budget"));
    EXPECT_THAT(error.what(), HasSubstr("immediate, resharded after forward"));
  }
}

/// The five, least traffic first, each predicted in full.
std::vector<std::pair<config::Sync, double>> predicted_policies(config::RunConfig config, const Machine& machine) {
  std::vector<std::pair<config::Sync, double>> out;
  for (const auto& [policy, forward, backward] : {std::tuple{SyncPolicy::deferred, 1, false},
                                                  {SyncPolicy::deferred, 1, true},
                                                  {SyncPolicy::deferred, 0, true},
                                                  {SyncPolicy::immediate, 1, true},
                                                  {SyncPolicy::immediate, 0, true}}) {
    config.sync.policy = policy;
    config.sync.reshard_after_forward = forward;
    config.sync.reshard_after_backward = backward;
    out.emplace_back(config.sync,
                     predict(config, 4, machine, {.percentiles = false, .memory = false}).expected.seconds);
  }
  return out;
}

/// On a link without latency a reduction per microbatch can be hidden, and the one at the end cannot.
TEST_F(ChooseSync, TakesTheFastestAndNotTheLeastTraffic) {
  int more_traffic = 0;
  for (const double bandwidth : {0.05, 0.5, 2.0, 20.0}) {
    Machine machine = load_machine("local");
    machine.inside.latency = 0;
    machine.inside.bandwidth = 1e9 * bandwidth;
    machine.contention = 0;
    const Choice choice = under(1LL << 40, machine);
    EXPECT_THAT(choice.reason, HasSubstr("predicted on local"));
    const auto all = predicted_policies(config_, machine);
    const auto same = [&](const config::Sync& sync) {
      return sync.policy == choice.sync.policy && sync.reshard_after_forward == choice.sync.reshard_after_forward &&
             sync.reshard_after_backward == choice.sync.reshard_after_backward;
    };
    double best = all.front().second, taken = 0;
    for (const auto& [sync, seconds] : all) {
      best = std::min(best, seconds);
      if (same(sync)) taken = seconds;
    }
    EXPECT_LE(taken, 1.01 * best) << bandwidth;
    more_traffic += same(all.front().first) ? 0 : 1;
  }
  EXPECT_GT(more_traffic, 0);
}

TEST(MachineOf, AGpuIsTheShippedOneWithItsNameOrOneThatComesNear) {
  const auto gib = [](std::int64_t count) { return Bytes{count << 30}; };
  EXPECT_EQ(machine_of("", {}).name, "local");
  EXPECT_EQ(machine_of("NVIDIA H200", gib(140)).name, "h200");
  EXPECT_EQ(machine_of("NVIDIA GH200 480GB", gib(95)).name, "gh200");
  EXPECT_EQ(machine_of("NVIDIA A100-PCIE-40GB", gib(39)).name, "a100-40gb");
  EXPECT_EQ(machine_of("GRID A100X-40C", gib(39)).name, "h100") << "a word that only begins like one";
  EXPECT_EQ(machine_of("Some GPU of another kind", gib(80)).name, "h100");
  const auto pcie = machine_of_gpu("NVIDIA H100 PCIe", gib(79)), sxm = machine_of_gpu("NVIDIA H100 80GB HBM3", gib(79));
  ASSERT_TRUE(pcie && sxm);
  EXPECT_EQ(pcie->name, "h100");
  EXPECT_FALSE(pcie->same);
  EXPECT_TRUE(sxm->same);
}

TEST_F(ChooseSync, LeavesAChosenPolicyAlone) {
  config_.sync.policy = SyncPolicy::immediate;
  EXPECT_EQ(under(1).sync.policy, SyncPolicy::immediate);
  EXPECT_EQ(under(1).reason, "");
}

}  // namespace
}  // namespace trireme::planner
