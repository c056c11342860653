// SPDX-License-Identifier: Apache-2.0
#include "trireme/schedule/exchange.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "models.hpp"
#include "trireme/schedule/text.hpp"

namespace trireme::schedule::exchange_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr Phase all_phases[]{Phase::forward, Phase::backward, Phase::again, Phase::recompute};

model::Model divided() { return testing::llama(1, false, {.ranks = 2, .sequence_parallel = true}); }

TEST(ExchangeRows, HaveOneLineForEachKindAndPhase) {
  const model::Model model = divided();
  std::set<std::string> lines;
  for (const ExchangeRow& row : exchange_rows()) {
    EXPECT_EQ(&row, &row_of(row.kind));
    for (const Phase phase : all_phases) {
      if (!row.phases.has(phase)) continue;
      const Op op = Exchanged{row.kind, Block{1}, Stage{1}, Microbatch{2}, phase};
      EXPECT_TRUE(lines.insert(print(op, model)).second) << print(op, model);
      EXPECT_EQ(lane_of(op), row.lane);
      const Schedule parsed = parse("step microbatches=3\n" + print(op, model), model);
      EXPECT_EQ(parsed.ops, std::vector<Op>{op}) << print(op, model);
    }
  }
  EXPECT_TRUE(lines.contains("gather_sequence b0.attention m2 again"));
  EXPECT_TRUE(lines.contains("exchange_heads b0.attention m2 recompute -> tokens"));
  EXPECT_TRUE(lines.contains("scatter_keys b0.attention m2"));  // in backward only
}

TEST(ExchangeRows, RefuseADirectionThatTheyDoNotHave) {
  const model::Model model = divided();
  const auto what = [&](const std::string& line) -> std::string {
    try {
      (void)parse("step microbatches=1\n" + line, model);
    } catch (const std::exception& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_THAT(what("exchange_heads b0.attention m0"), HasSubstr("expected ->"));
  EXPECT_THAT(what("exchange_heads b0.attention m0 -> ranks"), HasSubstr("expected tokens"));
  EXPECT_NE(what("scatter_keys b0.attention m0 backward"), "");
}

TEST(ExchangesAtAStage, AreThoseOfForwardTheOtherWayInBackward) {
  model::Stage stage{.name = "experts", .kind = model::StageKind::experts, .parameters = {}};
  stage.enter = Exchange::dispatch;
  stage.leave = Exchange::combine;
  using At = PlacedExchange;
  EXPECT_THAT(exchanges_at(stage, Place::before_forward),
              ElementsAre(At{Exchange::exchange_counts, Phase::forward}, At{Exchange::dispatch, Phase::forward}));
  EXPECT_THAT(exchanges_at(stage, Place::after_forward), ElementsAre(At{Exchange::combine, Phase::forward}));
  EXPECT_THAT(exchanges_at(stage, Place::before_recompute), ElementsAre(At{Exchange::dispatch, Phase::recompute}));
  EXPECT_THAT(exchanges_at(stage, Place::after_recompute), IsEmpty());
  EXPECT_THAT(exchanges_at(stage, Place::before_backward), ElementsAre(At{Exchange::combine, Phase::backward}));
  EXPECT_THAT(exchanges_at(stage, Place::after_backward), ElementsAre(At{Exchange::dispatch, Phase::backward}));
  stage.enter = Exchange::gather_keys;
  stage.leave = Exchange::scatter_sequence;
  EXPECT_THAT(exchanges_at(stage, Place::before_backward),
              ElementsAre(At{Exchange::gather_sequence, Phase::backward}, At{Exchange::gather_keys, Phase::again}));
  EXPECT_THAT(exchanges_at(stage, Place::after_backward), ElementsAre(At{Exchange::scatter_keys, Phase::backward}));
  EXPECT_THAT(exchanges_at(stage, Place::before_weights), IsEmpty());
  stage.enter = Exchange::gather_sequence;
  EXPECT_THAT(exchanges_at(stage, Place::before_weights), ElementsAre(At{Exchange::gather_sequence, Phase::again}));
}

TEST(ExchangesAtAStage, OfAnActivationThatIsSummedAreInOneDirectionOnly) {
  model::Stage stage{.name = "mlp", .kind = model::StageKind::mlp_branch, .parameters = {}};
  stage.enter = stage.leave = Exchange::all_reduce_activation;
  EXPECT_THAT(exchanges_at(stage, Place::before_forward), IsEmpty());
  EXPECT_THAT(exchanges_at(stage, Place::before_backward), IsEmpty());
  EXPECT_THAT(exchanges_at(stage, Place::after_forward),
              ElementsAre(PlacedExchange{Exchange::all_reduce_activation, Phase::forward}));
  EXPECT_THAT(exchanges_at(stage, Place::after_backward),
              ElementsAre(PlacedExchange{Exchange::all_reduce_activation, Phase::backward}));
}

}  // namespace
}  // namespace trireme::schedule::exchange_test
