// SPDX-License-Identifier: Apache-2.0
#include "trireme/planner/choose.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/base/error.hpp"

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
  Choice under(std::int64_t budget) {
    config_.memory.budget = Bytes{budget};
    return choose_sync(config_, model::build(config_.model), config::resolve(config_, 4));
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
TEST_F(ChooseSync, GivesUpMemoryStepByStep) {
  std::vector<std::pair<SyncPolicy, std::int64_t>> seen;
  for (std::int64_t budget = 200 << 20; budget > 0; budget -= 1 << 18) {
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

TEST_F(ChooseSync, SaysWhatItTriedAndWhy) {
  EXPECT_THAT(under(1LL << 40).reason, HasSubstr("taken: the first that fits"));
  try {
    (void)under(1000);
    FAIL() << "nothing fits 1000 bytes";
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), HasSubstr("no policy fits memory.budget"));
    EXPECT_THAT(error.what(), HasSubstr("immediate, resharded after forward"));
  }
}

TEST_F(ChooseSync, LeavesAChosenPolicyAlone) {
  config_.sync.policy = SyncPolicy::immediate;
  EXPECT_EQ(under(1).sync.policy, SyncPolicy::immediate);
  EXPECT_EQ(under(1).reason, "");
}

}  // namespace
}  // namespace trireme::planner
