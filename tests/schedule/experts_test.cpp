// SPDX-License-Identifier: Apache-2.0
// Exchanges between stages with experts divided over ranks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "broken_exchanges.hpp"
#include "lines.hpp"
#include "trireme/schedule/needs.hpp"
#include "trireme/schedule/passes/build.hpp"
#include "trireme/schedule/text.hpp"
#include "trireme/schedule/verify/verify.hpp"

namespace trireme::schedule::experts_test {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::ops_of;

config::Model mixture() {
  config::Model config;
  config.architecture = "qwen3_moe";
  config.vocab_size = 257;
  config.hidden_size = 72;
  config.intermediate_size = 100;
  config.layers = 2;
  config.heads = 6;
  config.kv_heads = 2;
  config.head_dim = 12;
  config.experts = 4;
  config.experts_per_token = 2;
  config.expert_size = 22;
  return config;
}

model::Model divided_mixture(bool tied = false, std::int64_t layers = 2, std::int64_t dense_layers = 0) {
  config::Model config = mixture();
  config.layers = layers;
  config.dense_layers = dense_layers;
  config.tie_embeddings = tied;
  return model::build(config, model::TensorPart{.experts = {.ranks = 2}});
}

TEST(ExpertSchedule, CountsAndDispatchesRowsAndCombinesThemInBothPasses) {
  const model::Model model = divided_mixture();
  EXPECT_EQ(ops_of(print(build_step(model, 1, {}), model), "b0"), R"(unshard b0.experts -> ring2.0
forward b0.attention m0
forward b0.route m0
exchange_counts b0.experts m0
dispatch b0.experts m0
forward b0.experts m0
reshard b0.experts
combine b0.experts m0
forward b0.merge m0
unshard b0.experts -> ring2.0
backward b0.merge m0
combine b0.experts m0 backward
backward b0.experts m0 -> b0.experts grad2.1
reduce_scatter b0.experts <- grad2.1
reshard b0.experts
dispatch b0.experts m0 backward
backward b0.route m0 -> b0 grad1.1
backward b0.attention m0 -> b0 grad1.1
update b0.experts
)");
}

TEST(ExpertSchedule, DispatchesAgainForABlockThatRunsAgainAndCountsNothingTwice) {
  const model::Model model = divided_mixture();
  const Schedule step = build_step(model, 1, {.recompute = {.mode = config::Recompute::block}});
  EXPECT_THAT(ops_of(print(step, model), "b1"), HasSubstr("recompute b1.attention m0\n"
                                                          "recompute b1.route m0\n"
                                                          "dispatch b1.experts m0 recompute\n"
                                                          "recompute b1.experts m0\n"
                                                          "recompute b1.merge m0\n"
                                                          "backward b1.merge m0\n"));
  EXPECT_EQ(std::ranges::count_if(step.ops,
                                  [](const Op& op) {
                                    const auto* const exchanged = std::get_if<Exchanged>(&op);
                                    return exchanged != nullptr && exchanged->kind == Exchange::exchange_counts;
                                  }),
            2);
}

TEST(ExpertSchedule, IsSoundAndOrderedForEveryPolicyAndParsesBack) {
  using config::Offload;
  using config::SyncPolicy;
  for (const bool tied : {true, false})
    for (const auto sync : {SyncPolicy::immediate, SyncPolicy::deferred, SyncPolicy::immediate_all})
      for (const auto& [keep, offload] :
           {std::pair{true, Offload::none}, {false, Offload::optimizer}, {true, Offload::parameters}}) {
        const model::Model model = divided_mixture(tied, 3, tied ? 1 : 0);
        const Policy policy{.sync = sync,
                            .reshard = {.after_forward = !keep, .after_backward = !keep},
                            .recompute = {.mode = tied ? config::Recompute::block : config::Recompute::selective},
                            .activation_offload = {.on = offload != Offload::none},
                            .offload = {.what = offload, .fraction = keep ? 0.5 : 1},
                            .replicas = tied ? 2 : 1};
        const Schedule schedule = build_step(model, 2, policy);
        EXPECT_THAT(verify(schedule, model, policy.replicas), IsEmpty());
        EXPECT_THAT(verify_needs(schedule, model, needs(schedule, model)), IsEmpty());
        EXPECT_EQ(parse(print(schedule, model), model), schedule);
        const Schedule forward = build_forward(model, policy);
        EXPECT_EQ(parse(print(forward, model), model), forward);
      }
}

TEST(BrokenExpertSchedule, IsRejectedWhateverExchangeIsMissingDoubledOrMoved) {
  for (const auto recompute : {config::Recompute::selective, config::Recompute::block}) {
    const model::Model model = divided_mixture();
    const Schedule sound = build_step(model, 2, {.recompute = {.mode = recompute}});
    EXPECT_EQ(testing::expect_each_exchange_needed(sound, model, Lane::expert),
              2 * 2 * (recompute == config::Recompute::block ? 6 : 5));
  }
}

model::Model divided_further(int tensor, int context, int experts) {
  return model::build(divided_mixture().config, model::TensorPart{.ranks = tensor,
                                                                  .sequence_parallel = tensor > 1,
                                                                  .context = {.ranks = context},
                                                                  .experts = {.ranks = experts, .needs_loads = true}});
}

TEST(ExpertSchedule, SumsLoadsOfDividedSequencesBeforeTheRoutersBackward) {
  const model::Model model = divided_further(1, 2, 1);
  EXPECT_THAT(ops_of(print(build_step(model, 1, {}), model), "b0"),
              HasSubstr("sum_loads b0.moe m0\nbackward b0.moe m0 -> b0"));
  const model::Model both = divided_further(2, 1, 2);
  EXPECT_THAT(ops_of(print(build_step(both, 1, {}), both), "b0"),
              HasSubstr("sum_loads b0.route m0\nbackward b0.route m0 -> b0"));
}

TEST(ExpertSchedule, OfOtherAxesIsSoundForEveryPolicyAndParsesBack) {
  for (const auto& [tensor, context, experts] : {std::tuple{2, 1, 1}, {1, 2, 1}, {2, 1, 4}, {2, 2, 2}, {1, 2, 2}})
    for (const auto recompute : {config::Recompute::selective, config::Recompute::block})
      for (const auto offload : {config::Offload::none, config::Offload::parameters}) {
        const model::Model model = divided_further(tensor, context, experts);
        const Policy policy{.recompute = {.mode = recompute},
                            .activation_offload = {.on = offload != config::Offload::none},
                            .offload = {.what = offload}};
        const Schedule schedule = build_step(model, 2, policy);
        EXPECT_THAT(verify(schedule, model, 1), IsEmpty());
        EXPECT_THAT(verify_needs(schedule, model, needs(schedule, model)), IsEmpty());
        EXPECT_EQ(parse(print(schedule, model), model), schedule);
      }
}

TEST(BrokenExpertSchedule, IsRejectedWhateverSumOfLoadsIsMissingDoubledOrMoved) {
  for (const auto recompute : {config::Recompute::selective, config::Recompute::block}) {
    const model::Model model = divided_further(1, 2, 1);
    const Schedule sound = build_step(model, 2, {.recompute = {.mode = recompute}});
    EXPECT_EQ(testing::expect_each_exchange_needed(sound, model, Lane::expert), 2 * 2);
    const model::Model both = divided_further(2, 1, 2);
    const Schedule of_both = build_step(both, 2, {.recompute = {.mode = recompute}});
    EXPECT_EQ(testing::expect_each_exchange_needed(of_both, both, Lane::expert),
              2 * 2 * (recompute == config::Recompute::block ? 7 : 6));
  }
}

/// Experts are divided over expert ranks out of all that share them, tensor ranks among these.
TEST(ExpertSchedule, ReadsExpertsInPlaceWhereOneRankGathersThem) {
  const auto in_place = [](int tensor, int shards) {
    model::TensorPart part{.ranks = tensor, .sequence_parallel = tensor > 1, .experts = {.ranks = 2}};
    const model::Model model = model::build(mixture(), part);
    const std::string text = print(build_step(model, 1, {.in_place = {.shards = shards}}), model);
    return text.find("unshard b0.experts in place") != std::string::npos;
  };
  EXPECT_TRUE(in_place(1, 2));
  EXPECT_TRUE(in_place(2, 1));
  EXPECT_FALSE(in_place(2, 2));
  EXPECT_FALSE(in_place(1, 4));
}

TEST(BrokenExpertSchedule, IsRejectedWhereAStageWithoutLoadsSumsThem) {
  const model::Model model = divided_further(1, 2, 1);
  Schedule broken = build_step(model, 1, {});
  for (Op& op : broken.ops)
    if (auto* const sum = std::get_if<Exchanged>(&op); sum != nullptr && sum->kind == Exchange::sum_loads)
      sum->segment = Stage{0};
  EXPECT_THAT(verify(broken, model, 1), Contains(HasSubstr("sums loads that its stage does not read")));
}

TEST(BrokenExpertSchedule, IsRejectedWhereAStageWithoutRowsExchangesThem) {
  const model::Model model = divided_mixture();
  const Schedule sound = build_step(model, 1, {});
  const auto with_stage = [&](const Exchanged& exchanged, const std::string& complaint) {
    Schedule broken = sound;
    for (Op& op : broken.ops)
      if (auto* const found = std::get_if<Exchanged>(&op); found != nullptr && found->block == Block{1} &&
                                                           found->kind == exchanged.kind &&
                                                           found->phase == exchanged.phase)
        found->segment = Stage{0};
    EXPECT_THAT(verify(broken, model, 1), Contains(HasSubstr(complaint)));
  };
  const auto with_phase = [&](const Exchanged& exchanged, Phase phase, const std::string& complaint) {
    Schedule broken = sound;
    const auto op = std::ranges::find(broken.ops, Op{exchanged});
    ASSERT_NE(op, broken.ops.end());
    std::get<Exchanged>(*op).phase = phase;
    EXPECT_THAT(verify(broken, model, 1), Contains(HasSubstr(complaint)));
  };
  const auto of = [](Exchange kind, Phase phase) { return Exchanged{kind, Block{1}, Stage{2}, Microbatch{0}, phase}; };
  with_stage(of(Exchange::exchange_counts, Phase::forward), "counts rows that its stage does not get");
  with_stage(of(Exchange::dispatch, Phase::forward), "dispatches rows that its stage does not read");
  with_stage(of(Exchange::combine, Phase::backward), "combines what its stage does not leave");
  with_phase(of(Exchange::dispatch, Phase::forward), Phase::again, "dispatches rows that no forward waits for");
  with_phase(of(Exchange::combine, Phase::backward), Phase::recompute, "combines what nothing reads");
}

}  // namespace
}  // namespace trireme::schedule::experts_test
