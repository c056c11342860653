// SPDX-License-Identifier: Apache-2.0
#include "trireme/schedule/passes/passes.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "schedule/models.hpp"
#include "trireme/base/error.hpp"
#include "trireme/schedule/access.hpp"
#include "trireme/schedule/buffers.hpp"
#include "trireme/schedule/passes/build.hpp"
#include "trireme/schedule/text.hpp"

namespace trireme::schedule {
namespace {

using ::testing::HasSubstr;

int count(const Schedule& schedule, const model::Model& model, const std::string& text) {
  int n = 0;
  for (const Op& op : schedule.ops) n += print(op, model).starts_with(text) ? 1 : 0;
  return n;
}

TEST(ComputeOrder, RunsEveryStageForwardAndBackwardOncePerMicrobatch) {
  const model::Model model = testing::llama(2);
  const Schedule s = compute_order(model, 3);
  EXPECT_EQ(s.ops.size(), 3U * 2U * (1 + 2 * 2 + 1));
  EXPECT_EQ(count(s, model, "forward b1.mlp"), 3);
  EXPECT_EQ(count(s, model, "backward b1.attention"), 3);
}

TEST(FuseStages, LeavesOneOpPerBlock) {
  const model::Model model = testing::llama(2);
  const Schedule s = build_step(model, 1, {});
  EXPECT_EQ(count(s, model, "forward"), model.blocks());
  EXPECT_EQ(count(s, model, "backward"), model.blocks());
}

/// Per microbatch one gather per block for forward and one more for each block that was given up and whose backward
/// reads it.
TEST(InsertUnshard, GathersEachBlockOncePerForwardAndOncePerBackwardThatReadsIt) {
  const model::Model model = testing::llama(3);
  const Schedule s = build_step(model, 2, {});
  EXPECT_EQ(count(s, model, "unshard embedding"), 2);
  for (const char* block : {"unshard b0", "unshard b1", "unshard b2"}) EXPECT_EQ(count(s, model, block), 4) << block;
  EXPECT_EQ(count(s, model, "unshard head"), 2);
}

TEST(InsertUnshard, GathersOnceWhenKeptAfterForwardAndOnceAStepWhenKeptUntilTheUpdate) {
  const model::Model model = testing::llama(3);
  const Schedule kept = build_step(model, 2, {.reshard = {.after_forward = false}});
  EXPECT_EQ(count(kept, model, "unshard"), 2 * model.param_blocks());
  const Schedule once = build_step(model, 2, {.reshard = {.after_forward = false, .after_backward = false}});
  EXPECT_EQ(count(once, model, "unshard"), model.param_blocks());
}

TEST(InsertUnshard, GathersATiedEmbeddingForTheHeadToo) {
  const model::Model model = testing::llama(2, /*tied=*/true);
  const Schedule s = build_step(model, 1, {});
  EXPECT_EQ(count(s, model, "unshard embedding"), 2);
  EXPECT_EQ(count(s, model, "reduce_scatter embedding"), 1);
}

TEST(InsertRecompute, RunsEveryForwardOfTheChosenBlocksAgainAndGathersNoMore) {
  const model::Model model = testing::llama(5);
  const auto built = [&](config::Recompute mode, std::int64_t every) {
    return build_step(model, 2, {.recompute = {.mode = mode, .every = every}});
  };
  const Schedule all = built(config::Recompute::block, 1);
  EXPECT_EQ(count(all, model, "recompute"), 2 * 5);
  EXPECT_EQ(count(all, model, "unshard"), count(built(config::Recompute::none, 1), model, "unshard"));
  const Schedule second = built(config::Recompute::block, 2);
  for (const char* block : {"recompute b0", "recompute b2", "recompute b4"})
    EXPECT_EQ(count(second, model, block), 2) << block;
  EXPECT_EQ(count(second, model, "recompute"), 2 * 3);
  EXPECT_EQ(count(built(config::Recompute::selective, 1), model, "recompute"), 0);
}

TEST(InsertReduction, ReducesEveryMicrobatchOrOncePerStep) {
  const model::Model model = testing::llama(3);
  const Schedule immediate = build_step(model, 4, {.sync = config::SyncPolicy::immediate, .replicas = 2});
  EXPECT_EQ(count(immediate, model, "reduce_scatter"), 4 * model.param_blocks());
  EXPECT_EQ(count(immediate, model, "all_reduce"), model.param_blocks());
  const Schedule deferred = build_step(model, 4, {.sync = config::SyncPolicy::deferred});
  EXPECT_EQ(count(deferred, model, "reduce_scatter"), model.param_blocks());
}

TEST(AssignSlots, KeepsTwoBlocksOfParametersAndGradientsUnderImmediate) {
  const model::Model model = testing::llama(8);
  const RingSizes sizes = ring_sizes(build_step(model, 2, {}), model);
  EXPECT_EQ(sizes.parameters, (std::vector<int>{1, 2, 1}));
  EXPECT_EQ(sizes.gradients, (std::vector<int>{1, 2, 1}));
}

TEST(AssignSlots, HoldsEveryGradientUnderDeferredAndEveryParameterWhenKept) {
  const model::Model model = testing::llama(8);
  const Schedule s = build_step(model, 2, {.sync = config::SyncPolicy::deferred, .reshard = {.after_forward = false}});
  EXPECT_EQ(ring_sizes(s, model).gradients, (std::vector<int>{1, 8, 1}));
  EXPECT_EQ(ring_sizes(s, model).parameters, (std::vector<int>{1, 8, 1}));
}

TEST(Prefetch, IsBoundedInBytes) {
  const model::Model model = testing::llama(8);
  const auto slots = [&](std::optional<Bytes> limit) {
    return ring_sizes(build_step(model, 1, {.prefetch_bytes = limit}), model).parameters[1];
  };
  EXPECT_EQ(slots(Bytes{0}), 1);
  EXPECT_EQ(slots(std::nullopt), 2);
  const std::int64_t layer_bytes = 4 * (72 + 72 * 72 + 24 * 72 * 2 + 72 * 72 + 72 + 3 * 72 * 100 + 64 * 9);
  EXPECT_EQ(slots(Bytes{2 * layer_bytes}), 3);
  EXPECT_EQ(slots(Bytes{3 * layer_bytes}), 4);
}

TEST(Prefetch, PutsTheNextGatherBeforeTheForwardItHidesUnder) {
  const model::Model model = testing::llama(3);
  const Schedule s = build_step(model, 1, {});
  const std::string text = print(s, model);
  EXPECT_LT(text.find("unshard b1"), text.find("forward b0"));
  EXPECT_GT(text.find("unshard b2"), text.find("forward b0"));
}

TEST(PolicyOf, LeavesGradientsWhereGraphsAndWindowsExpectThem) {
  const config::Resolved mesh;
  config::RunConfig config;
  EXPECT_TRUE(policy_of(config, mesh).transient_gradients);
  config.device.cuda_graphs = true;
  EXPECT_FALSE(policy_of(config, mesh).transient_gradients);
  config.device.cuda_graphs = false;
  config.comm.nccl_windows = true;
  EXPECT_FALSE(policy_of(config, mesh).transient_gradients);
}

TEST(PolicyOf, RoundsGradientsOfOneShardToBf16AsThoseOfMany) {
  config::RunConfig config;
  const auto in_place = [&] { return policy_of(config, config::Resolved{}).in_place.gradients; };
  EXPECT_TRUE(in_place());
  config.precision.reduce = config::Reduce::bf16_wire;  // only what travels
  EXPECT_TRUE(in_place());
  config.precision.reduce = config::Reduce::bf16;
  EXPECT_FALSE(in_place());
}

/// An order may hold a gather, so only the result of all passes shows that this one is not expected.
TEST(BuildStep, NamesTheFirstPassWhoseResultIsNotSound) {
  const model::Model model = testing::llama(2);
  const auto mistake = [&](const Op& stray, bool first) -> std::string {
    Schedule order = compute_order(model, 1);
    order.ops.insert(first ? order.ops.begin() : order.ops.end(), stray);
    try {
      (void)build_step(model, order, {});
    } catch (const BugError& error) {
      return error.what();
    }
    return "sound";
  };
  const Op unshard = Unshard{.block = ParamBlock{1}}, reshard = Reshard{.block = ParamBlock{1}};
  EXPECT_THAT(mistake(unshard, true), HasSubstr("the pass insert_unshard built an invalid schedule"));
  EXPECT_THAT(mistake(unshard, false), HasSubstr("the pass insert_unshard built an invalid schedule"));
  EXPECT_THAT(mistake(reshard, true), HasSubstr("the pass compute_order built an invalid schedule"));
}

TEST(BuildForward, GathersReadsAndFreesEachBlock) {
  const model::Model model = testing::llama(3);
  const Schedule s = build_forward(model, {});
  EXPECT_EQ(count(s, model, "backward"), 0);
  EXPECT_EQ(count(s, model, "unshard"), model.param_blocks());
  EXPECT_EQ(count(s, model, "reshard"), model.param_blocks());
}

}  // namespace
}  // namespace trireme::schedule
