// SPDX-License-Identifier: Apache-2.0
#include "trireme/planner/advice.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/config/load.hpp"
#include "trireme/planner/replay.hpp"

namespace trireme::planner {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

config::RunConfig run(const std::vector<std::string>& overrides) {
  return config::parse_run_file(R"(
[run]
name = "advice"
[model]
vocab_size = 1024
hidden_size = 256
intermediate_size = 512
layers = 8
heads = 4
[data]
train = "tokens.bin"
seq_len = 64
[batch]
global = 64
micro = 4
[precision]
compute = "fp32"
[train]
steps = 1
)",
                                "advice", overrides);
}

const Remedy* find(const Advice& advice, std::string_view line) {
  const auto found =
      std::find_if(advice.remedies.begin(), advice.remedies.end(), [&](const Remedy& r) { return r.line == line; });
  return found == advice.remedies.end() ? nullptr : &*found;
}

/// Bytes and traffic of a run, from the planner itself.
std::pair<Bytes, Bytes> needs(const config::RunConfig& config, int ranks) {
  const Advice advice = advise(config, ranks);
  return {advice.memory.total(), advice.memory.activations};
}

TEST(Advise, ResolvesTheDeviceOfAuto) {
  const config::RunConfig config = run({});
  EXPECT_EQ(advise(computing_on(config, false), 4).memory.workspace, Bytes{0});
  EXPECT_GT(advise(computing_on(config, true), 4).memory.workspace, Bytes{0}) << "the head's logits";
  EXPECT_EQ(advise(computing_on(run({"device.type=cpu"}), true), 4).memory.workspace, Bytes{0}) << "asked for";
}

TEST(Advise, PredictsSavingsOfEachRemedyAsInARun) {
  const config::RunConfig config = run({"sync.policy=deferred", "sync.reshard_after_forward=false"});
  const Bytes total = needs(config, 4).first;
  const Advice advice = advise(config, 4);
  ASSERT_GE(advice.remedies.size(), 4U);
  for (const Remedy& remedy : advice.remedies) {
    if (remedy.line == "8 ranks") {
      EXPECT_EQ(remedy.saves, total - needs(config, 8).first);
      continue;
    }
    const config::RunConfig with = run({"sync.policy=deferred", "sync.reshard_after_forward=false", remedy.line});
    EXPECT_EQ(remedy.saves, total - needs(with, 4).first) << remedy.line;
    EXPECT_GT(remedy.saves, Bytes{0}) << remedy.line;
  }
}

TEST(Advise, CountsRecomputeAsAForwardOfTheLayers) {
  const Advice advice = advise(run({}), 4);
  const Remedy* recompute = find(advice, "memory.recompute = \"block\"");
  ASSERT_NE(recompute, nullptr);
  EXPECT_GT(recompute->more_flops, 0.25);  // the head is not computed again
  EXPECT_LE(recompute->more_flops, 1.0 / 3);
  EXPECT_EQ(recompute->more_traffic, Bytes{0});
}

TEST(Advise, TakesImmediateGradientsForMoreTraffic) {
  const Advice advice = advise(run({"sync.policy=deferred"}), 4);
  const Remedy* immediate = find(advice, "sync.policy = \"immediate\"");
  ASSERT_NE(immediate, nullptr);
  EXPECT_GT(immediate->more_traffic, Bytes{0});
  EXPECT_EQ(immediate->more_flops, 0);
}

TEST(Advise, ReportsCopiesOfOffload) {
  const Advice advice = advise(run({}), 4);
  for (const char* line : {"memory.activation_offload = true", "memory.offload = \"optimizer\""}) {
    const Remedy* remedy = find(advice, line);
    ASSERT_NE(remedy, nullptr) << line;
    EXPECT_GT(remedy->more_copies, Bytes{0}) << line;
    EXPECT_EQ(remedy->more_traffic, Bytes{0}) << line;
  }
  EXPECT_THAT(to_text(advice), HasSubstr("copied to and from the host"));
}

TEST(Advise, OffersEveryRemedyWhereItHelps) {
  const Advice advice = advise(run({"sync.policy=deferred", "sync.reshard_after_forward=false", "memory.recompute=none",
                                    "mesh.replicate=2", "data.seq_len=256", "model.vocab_size=32000"}),
                               8);
  for (const char* line :
       {"batch.micro = 2", "sync.reshard_after_forward = true", "memory.recompute = \"selective\"",
        "memory.recompute = \"block\"", "memory.activation_offload = true", "memory.offload = \"optimizer\"",
        "memory.offload = \"parameters\"", "precision.compute = \"bf16\"", "precision.moments = \"bf16\"",
        "mesh.replicate = 1", "mesh.tensor = 2", "16 ranks"})
    EXPECT_NE(find(advice, line), nullptr) << line << "\n" << to_text(advice);
}

TEST(Advise, OffersSplitMastersToRunsInBf16) {
  const std::string line = "precision.masters = \"split\"";
  EXPECT_NE(find(advise(run({"precision.compute=bf16"}), 4), line), nullptr);
  EXPECT_EQ(find(advise(run({}), 4), line), nullptr) << "a ConfigError";
}

TEST(Advise, OffersExpertRanksToModelsWithExperts) {
  const Advice advice = advise(run({"model.architecture=mixtral", "model.experts=8", "model.experts_per_token=2"}), 8);
  EXPECT_NE(find(advice, "mesh.expert = 2"), nullptr) << to_text(advice);
  EXPECT_EQ(find(advise(run({}), 8), "mesh.expert = 2"), nullptr);
}

TEST(Advise, ReportsTheLargestCategories) {
  EXPECT_THAT(to_text(advise(run({"data.seq_len=512"}), 4)), HasSubstr("Activations are "));
  EXPECT_THAT(to_text(advise(run({"data.seq_len=8", "batch.micro=1"}), 1)),
              HasSubstr("wider sharding and offload help"));
}

TEST(Advise, ComparesWithTheBudget) {
  const Bytes total = needs(run({}), 4).first;
  const auto with_budget = [](Bytes budget) {
    return to_text(advise(run({"memory.budget=" + std::to_string(budget.value)}), 4));
  };
  EXPECT_THAT(with_budget(total), HasSubstr("It fits memory.budget"));
  EXPECT_THAT(with_budget(total - Bytes{1}), HasSubstr("1 B more than memory.budget"));
  EXPECT_THAT(with_budget(total - Bytes{1}), HasSubstr("  fits\n"));
  EXPECT_THAT(with_budget(total - Bytes{1}), Not(HasSubstr("Even one sequence")));
  EXPECT_THAT(with_budget(Bytes{1000}), HasSubstr("Even one sequence a microbatch"));
  EXPECT_THAT(with_budget(Bytes{1000}), Not(HasSubstr("  fits\n")));
}

TEST(Advise, LeavesOutWhatTheRunFileRulesOut) {
  EXPECT_EQ(find(advise(run({"batch.micro=1", "batch.global=4"}), 4), "8 ranks"), nullptr);  // 8 dp ranks, 4 sequences
  EXPECT_EQ(find(advise(run({"batch.micro=1"}), 4), "batch.micro = 1"), nullptr);            // nothing changes
}

TEST(Advice, ReportsTheContextMethodThatSendsLess) {
  // Heads send less if kv_heads x (3 x context - 2) > 2 x heads: 4 x 10 > 16, but 2 x 4 < 32.
  const std::vector<std::string> grouped{"model.heads=8", "model.kv_heads=4", "model.head_dim=32", "mesh.shard=1"};
  const auto advised = [&](const std::vector<std::string>& more, int ranks) {
    std::vector<std::string> overrides = grouped;
    overrides.insert(overrides.end(), more.begin(), more.end());
    return advise(run(overrides), ranks);
  };
  const Advice gathered = advised({"mesh.context=4"}, 4);
  ASSERT_TRUE(gathered.less_traffic);
  EXPECT_EQ(gathered.less_traffic->line, "context.method = \"heads\"");
  const std::int64_t tokens = 4 * 64 / 4, calls = 8 * 16,
                     width = 32 * 4;  // of a microbatch; of layers and microbatches
  EXPECT_EQ(gathered.less_traffic->bytes.value,
            calls * (3 * tokens * 2 * 4 * width * 3 - 2 * tokens * (2 * 8 + 2 * 4) * width * 3 / 4));
  EXPECT_THAT(to_text(gathered), HasSubstr("context.method = \"heads\" sends"));
  EXPECT_FALSE(advised({"mesh.context=4", "context.method=heads"}, 4).less_traffic);
  EXPECT_FALSE(advised({"mesh.context=3", "data.seq_len=66"}, 3).less_traffic) << "3 ranks cannot share the heads";
  const Advice few_keys = advised({"mesh.context=2", "model.heads=16", "model.kv_heads=2", "context.method=heads"}, 2);
  ASSERT_TRUE(few_keys.less_traffic);
  EXPECT_EQ(few_keys.less_traffic->line, "context.method = \"gather\"");
  ASSERT_NE(find(few_keys, "context.method = \"gather\""), nullptr) << "attention's output is kept once only";
}

TEST(Advice, CountsSavingsOfAPipeline) {
  const config::RunConfig config = run({"sync.policy=deferred", "sync.reshard_after_forward=false"});
  const Advice advice = advise(config, 4);
  const Remedy* const remedy = find(advice, "mesh.pipeline = 2");
  ASSERT_NE(remedy, nullptr);
  const auto [with, activations] =
      needs(run({"sync.policy=deferred", "sync.reshard_after_forward=false", "mesh.pipeline=2"}), 4);
  EXPECT_EQ(remedy->saves, advice.memory.total() - with);
  EXPECT_THAT(to_text(advice), HasSubstr("ranks wait for each other"));
  EXPECT_EQ(find(advise(run({"model.layers=1"}), 4), "mesh.pipeline = 2"), nullptr) << "one layer is not divided";
}

}  // namespace
}  // namespace trireme::planner
