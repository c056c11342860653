// SPDX-License-Identifier: Apache-2.0
// Exchanges between stages on the context axis.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "broken_exchanges.hpp"
#include "lines.hpp"
#include "models.hpp"
#include "trireme/schedule/exchange.hpp"
#include "trireme/schedule/needs.hpp"
#include "trireme/schedule/passes/build.hpp"
#include "trireme/schedule/text.hpp"
#include "trireme/schedule/verify/verify.hpp"

namespace trireme::schedule::context_test {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::ops_of;

using config::ContextMethod;

/// A model divided over two context ranks. By heads there are enough for two tensor ranks, too.
model::Model divided_llama(int tensor = 1, bool sequence_parallel = false, bool tied = false, std::int64_t layers = 2,
                           ContextMethod method = ContextMethod::gather) {
  const model::TensorPart part{
      .rank = 0, .ranks = tensor, .sequence_parallel = sequence_parallel, .context = {.ranks = 2, .method = method}};
  if (method == ContextMethod::gather) return testing::llama(layers, tied, part);
  config::Model config = testing::llama(layers, tied).config;
  config.heads = 8;
  config.kv_heads = 4;
  return model::build(config, part);
}

TEST(ContextSchedule, GathersKeysBeforeAttentionAndScattersTheirGradients) {
  const model::Model model = divided_llama();
  EXPECT_EQ(ops_of(print(build_step(model, 1, {}), model), "b0"), R"(forward b0.attention_norm m0
forward b0.projection m0
gather_keys b0.attention m0
forward b0.attention m0
forward b0.mlp m0
backward b0.mlp m0 -> b0 grad1.1
gather_keys b0.attention m0 again
backward_input b0.attention m0
scatter_keys b0.attention m0
backward_weight b0.attention m0 -> b0 grad1.1
recompute_norm b0.attention_norm m0
backward_input b0.projection m0
backward_weight b0.projection m0 -> b0 grad1.1
backward b0.attention_norm m0 -> b0 grad1.1
)");
}

TEST(ContextSchedule, ExchangesSequencesForHeadsAroundAttention) {
  const model::Model model = divided_llama(1, false, false, 2, ContextMethod::heads);
  EXPECT_EQ(ops_of(print(build_step(model, 1, {}), model), "b0"), R"(forward b0.attention_norm m0
forward b0.projection m0
exchange_heads b0.attention m0 -> heads
forward b0.attention m0
exchange_heads b0.output m0 -> tokens
forward b0.output m0
forward b0.mlp m0
backward b0.mlp m0 -> b0 grad1.1
backward_input b0.output m0
exchange_heads b0.output m0 backward -> heads
backward_weight b0.output m0 -> b0 grad1.1
backward b0.attention m0
exchange_heads b0.attention m0 backward -> tokens
recompute_norm b0.attention_norm m0
backward_input b0.projection m0
backward_weight b0.projection m0 -> b0 grad1.1
backward b0.attention_norm m0 -> b0 grad1.1
)");
}

TEST(ContextSchedule, ExchangesHeadsInsideTheGathersOfSequenceParallelism) {
  const model::Model model = divided_llama(2, true, false, 2, ContextMethod::heads);
  const std::string ops = ops_of(print(build_step(model, 1, {}), model), "b0");
  EXPECT_THAT(ops, HasSubstr(R"(gather_sequence b0.projection m0
forward b0.projection m0
exchange_heads b0.attention m0 -> heads
forward b0.attention m0
exchange_heads b0.output m0 -> tokens
forward b0.output m0
scatter_sequence b0.output m0
)"));
  EXPECT_THAT(ops, HasSubstr(R"(gather_sequence b0.output m0 backward
backward_input b0.output m0
exchange_heads b0.output m0 backward -> heads
)"));
}

TEST(ContextSchedule, StandsInsideTheGathersOfSequenceParallelism) {
  const model::Model model = divided_llama(2, true);
  const std::string ops = ops_of(print(build_step(model, 1, {}), model), "b0");
  EXPECT_THAT(ops, HasSubstr(R"(gather_sequence b0.projection m0
forward b0.projection m0
gather_keys b0.attention m0
forward b0.attention m0
scatter_sequence b0.attention m0
)"));
  EXPECT_THAT(ops, HasSubstr(R"(gather_sequence b0.attention m0 backward
gather_keys b0.attention m0 again
backward_input b0.attention m0
scatter_keys b0.attention m0
)"));
}

TEST(ContextSchedule, GathersKeysAgainForABlockThatRunsAgain) {
  const model::Model model = divided_llama();
  const std::string ops = print(build_step(model, 1, {.recompute = {.mode = config::Recompute::block}}), model);
  EXPECT_THAT(ops, HasSubstr("recompute b1.projection m0\n"
                             "gather_keys b1.attention m0 recompute\n"
                             "recompute b1.attention m0\n"
                             "recompute b1.mlp m0\n"));
  const model::Model by_heads = divided_llama(1, false, false, 2, ContextMethod::heads);
  EXPECT_THAT(print(build_step(by_heads, 1, {.recompute = {.mode = config::Recompute::block}}), by_heads),
              HasSubstr("recompute b1.projection m0\n"
                        "exchange_heads b1.attention m0 recompute -> heads\n"
                        "recompute b1.attention m0\n"
                        "exchange_heads b1.output m0 recompute -> tokens\n"
                        "recompute b1.output m0\n"
                        "recompute b1.mlp m0\n"));
}

TEST(ContextSchedule, IsSoundAndOrderedForEveryPolicyAndParsesBack) {
  using config::Offload;
  using config::SyncPolicy;
  for (const auto& [tensor, sequence_parallel] : {std::pair{1, false}, {2, false}, {2, true}})
    for (const auto method : {ContextMethod::gather, ContextMethod::heads})
      for (const bool tied : {true, false})
        for (const auto sync : {SyncPolicy::immediate, SyncPolicy::deferred, SyncPolicy::immediate_all})
          for (const auto& [keep, offload] :
               {std::pair{true, Offload::none}, {false, Offload::optimizer}, {true, Offload::parameters}}) {
            const model::Model model = divided_llama(tensor, sequence_parallel, tied, 3, method);
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
          }
}

int find(const Schedule& schedule, const model::Model& model, const std::string& text) {
  for (int i = 0; i < static_cast<int>(schedule.ops.size()); ++i)
    if (print(schedule.ops[static_cast<std::size_t>(i)], model).starts_with(text)) return i;
  return -1;
}

TEST(ContextSchedule, LetsWeightGradientsRunWhileThoseOfKeysAreSummed) {
  const model::Model model = divided_llama();
  const Schedule schedule = build_step(model, 1, {});
  const int sum = find(schedule, model, "scatter_keys b0"),
            weight = find(schedule, model, "backward_weight b0.attention"),
            projection = find(schedule, model, "backward_input b0.projection");
  std::vector<bool> after(schedule.ops.size());
  after.at(static_cast<std::size_t>(sum)) = true;
  for (int op = sum + 1; op <= projection; ++op)
    for (const Need& need : needs(schedule, model))
      if (need.to == op && need.distance == 0 && after[static_cast<std::size_t>(need.from)])
        after[static_cast<std::size_t>(op)] = true;
  EXPECT_FALSE(after[static_cast<std::size_t>(weight)]);
  EXPECT_TRUE(after[static_cast<std::size_t>(projection)]);
}

TEST(ContextSchedule, LetsWeightGradientsRunWhileThoseOfAttentionsOutputAreExchanged) {
  const model::Model model = divided_llama(1, false, false, 2, ContextMethod::heads);
  const Schedule schedule = build_step(model, 1, {});
  const int exchange = find(schedule, model, "exchange_heads b0.output m0 backward"),
            weight = find(schedule, model, "backward_weight b0.output"),
            attention = find(schedule, model, "backward b0.attention m0");
  bool weight_waits = false, attention_waits = false;
  for (const Need& need : needs(schedule, model)) {
    if (need.from != exchange || need.distance != 0) continue;
    weight_waits = weight_waits || need.to == weight;
    attention_waits = attention_waits || need.to == attention;
  }
  EXPECT_FALSE(weight_waits);
  EXPECT_TRUE(attention_waits);
}

TEST(BrokenContextSchedule, IsRejectedWhateverExchangeIsMissingDoubledOrMoved) {
  for (const auto recompute : {config::Recompute::selective, config::Recompute::block})
    for (const auto method : {ContextMethod::gather, ContextMethod::heads})
      for (const bool sequence_parallel : {false, true}) {
        const model::Model model = divided_llama(sequence_parallel ? 2 : 1, sequence_parallel, false, 2, method);
        const Schedule sound = build_step(model, 2, {.recompute = {.mode = recompute}});
        for (std::size_t i = 0; i < sound.ops.size(); ++i) {
          const auto* exchange = std::get_if<Exchanged>(&sound.ops[i]);
          if (exchange == nullptr || row_of(exchange->kind).name != "exchange_heads") continue;
          Schedule wrong_way = sound;
          std::get<Exchanged>(wrong_way.ops[i]).kind =
              exchange->kind == Exchange::to_heads ? Exchange::to_tokens : Exchange::to_heads;
          EXPECT_FALSE(verify(wrong_way, model, 1).empty()) << print(sound.ops[i], model) << " the other way";
        }
        const int exchanges = (method == ContextMethod::heads ? 4 : 3);
        const int again = recompute != config::Recompute::block ? 0 : method == ContextMethod::heads ? 2 : 1;
        EXPECT_EQ(testing::expect_each_exchange_needed(sound, model, Lane::context), 2 * 2 * (exchanges + again));
      }
}

TEST(BrokenContextSchedule, IsRejectedWhereAStageWithoutKeysGathersThem) {
  const model::Model model = divided_llama();
  Schedule schedule = build_step(model, 1, {});
  const int at = find(schedule, model, "gather_keys b0.attention m0");
  std::get<Exchanged>(schedule.ops[static_cast<std::size_t>(at)]).segment = Stage{1};
  EXPECT_THAT(verify(schedule, model, 1), Contains(HasSubstr("gathers keys that its stage does not read")));
}

}  // namespace
}  // namespace trireme::schedule::context_test
