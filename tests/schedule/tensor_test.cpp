// SPDX-License-Identifier: Apache-2.0
// Exchanges between stages on the tensor axis.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "lines.hpp"
#include "models.hpp"
#include "trireme/schedule/needs.hpp"
#include "trireme/schedule/passes/build.hpp"
#include "trireme/schedule/text.hpp"
#include "trireme/schedule/verify/verify.hpp"

namespace trireme::schedule::tensor_test {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::ops_of;

model::Model partitioned_llama(bool sequence_parallel, bool tied = false, std::int64_t layers = 2) {
  return testing::llama(layers, tied, {.rank = 0, .ranks = 2, .sequence_parallel = sequence_parallel});
}

std::string step_text(const model::Model& model, int microbatches = 1, const Policy& policy = {}) {
  return print(build_step(model, microbatches, policy), model);
}

TEST(TensorSchedule, GathersAndScattersTheSequenceAroundEveryBranch) {
  const model::Model model = partitioned_llama(true);
  EXPECT_EQ(ops_of(step_text(model), "b0"), R"(forward b0.attention_norm m0
gather_sequence b0.attention m0
forward b0.attention m0
scatter_sequence b0.attention m0
forward b0.mlp_norm m0
gather_sequence b0.mlp m0
forward b0.mlp m0
scatter_sequence b0.mlp m0
gather_sequence b0.mlp m0 backward
recompute_norm b0.mlp_norm m0
gather_sequence b0.mlp m0 again
backward_input b0.mlp m0
scatter_sequence b0.mlp m0 backward
backward_weight b0.mlp m0 -> b0 grad1.1
backward b0.mlp_norm m0 -> b0 grad1.1
gather_sequence b0.attention m0 backward
recompute_norm b0.attention_norm m0
gather_sequence b0.attention m0 again
backward_input b0.attention m0
scatter_sequence b0.attention m0 backward
backward_weight b0.attention m0 -> b0 grad1.1
backward b0.attention_norm m0 -> b0 grad1.1
)");
}

TEST(TensorSchedule, SumsActivationsTwiceABranchWithoutSequenceParallelism) {
  const model::Model model = partitioned_llama(false);
  EXPECT_EQ(ops_of(step_text(model), "b1"), R"(forward b1.attention_norm m0
forward b1.attention m0
all_reduce_activation b1.attention m0
forward b1.mlp_norm m0
forward b1.mlp m0
all_reduce_activation b1.mlp m0
recompute_norm b1.mlp_norm m0
backward_input b1.mlp m0
all_reduce_activation b1.mlp m0 backward
backward_weight b1.mlp m0 -> b1 grad1.0
backward b1.mlp_norm m0 -> b1 grad1.0
recompute_norm b1.attention_norm m0
backward_input b1.attention m0
all_reduce_activation b1.attention m0 backward
backward_weight b1.attention m0 -> b1 grad1.0
backward b1.attention_norm m0 -> b1 grad1.0
)");
}

TEST(TensorSchedule, ExchangesAgainWhatABlockThatRunsAgainNeeds) {
  const model::Model model = partitioned_llama(true);
  const std::string ops = ops_of(step_text(model, 1, {.recompute = {.mode = config::Recompute::block}}), "b1");
  EXPECT_NE(ops.find(R"(recompute b1.attention_norm m0
gather_sequence b1.attention m0 recompute
recompute b1.attention m0
scatter_sequence b1.attention m0 recompute
recompute b1.mlp_norm m0
gather_sequence b1.mlp m0 recompute
recompute b1.mlp m0
gather_sequence b1.mlp m0 backward
)"),
            std::string::npos)
      << ops;
}

TEST(TensorSchedule, GathersABlocksParametersOnceAForward) {
  for (const bool sequence_parallel : {true, false}) {
    const std::string text = step_text(partitioned_llama(sequence_parallel));
    std::size_t count = 0;
    for (std::size_t at = text.find("unshard b0"); at != std::string::npos; at = text.find("unshard b0", at + 1))
      ++count;
    EXPECT_EQ(count, 2U) << "once for the forward, once for the backward\n" << text;
  }
}

TEST(TensorSchedule, SumsCopiesOnceAfterTheLastReductionWhereTheySawDifferentTokens) {
  const std::string text = step_text(partitioned_llama(true), 3, {.replicas = 2});
  EXPECT_NE(text.find("all_reduce b1\nall_reduce_replicated b1\n"), std::string::npos) << text;
  EXPECT_EQ(text.find("all_reduce_replicated b1"), text.rfind("all_reduce_replicated b1"));
  EXPECT_EQ(text.find("all_reduce_replicated embedding"), std::string::npos) << "each rank has its own rows";
  EXPECT_EQ(step_text(partitioned_llama(false)).find("all_reduce_replicated"), std::string::npos);
}

TEST(TensorSchedule, SumsCopiesOnTheHostWhereTheGradientsAre) {
  const std::string text =
      step_text(partitioned_llama(true), 3, {.offload = {.what = config::Offload::optimizer}, .replicas = 2});
  EXPECT_NE(text.find("all_reduce b1\nall_reduce_replicated b1\nsum_squares b1\n"), std::string::npos) << text;
  EXPECT_EQ(text.find("all_reduce_replicated b1"), text.rfind("all_reduce_replicated b1"));
}

TEST(TensorSchedule, BringsActivationsBackBeforeAnythingOfTheirBackward) {
  for (const auto recompute : {config::Recompute::selective, config::Recompute::block}) {
    const std::string text = step_text(partitioned_llama(true, false, 3), 1,
                                       {.recompute = {.mode = recompute}, .activation_offload = {.on = true}});
    const std::string next = recompute == config::Recompute::block ? "recompute b2.attention_norm m0\n"
                                                                   : "gather_sequence b2.mlp m0 backward\n";
    EXPECT_NE(text.find("allocate b1 m0\nreload b1 m0\n" + next), std::string::npos) << text;
    EXPECT_NE(text.find("offload b1 m0 min 0\nreshard b1\nscatter_sequence b1.mlp m0\n"), std::string::npos) << text;
  }
}

TEST(TensorSchedule, IsSoundAndOrderedForEveryPolicyAndParsesBack) {
  using config::Offload;
  using config::SyncPolicy;
  for (const bool sequence_parallel : {true, false})
    for (const bool tied : {true, false})
      for (const auto sync : {SyncPolicy::immediate, SyncPolicy::deferred, SyncPolicy::immediate_all})
        for (const int replicas : {1, 2})
          for (const auto& [keep, offload] :
               {std::pair{true, Offload::none}, {false, Offload::optimizer}, {true, Offload::parameters}}) {
            const model::Model model = partitioned_llama(sequence_parallel, tied, 3);
            const Policy policy{.sync = sync,
                                .reshard = {.after_forward = !keep, .after_backward = !keep},
                                .recompute = {.mode = tied ? config::Recompute::block : config::Recompute::selective},
                                .activation_offload = {.on = offload != Offload::none},
                                .offload = {.what = offload, .fraction = keep ? 0.5 : 1},
                                .prefetch_bytes = keep ? std::optional(Bytes{1LL << 40}) : std::nullopt,
                                .replicas = replicas};
            const Schedule schedule = build_step(model, 3, policy);
            EXPECT_THAT(verify(schedule, model, replicas), IsEmpty());
            EXPECT_THAT(verify_needs(schedule, model, needs(schedule, model)), IsEmpty());
            EXPECT_EQ(parse(print(schedule, model), model), schedule);
          }
}

int find(const Schedule& schedule, const model::Model& model, const std::string& text) {
  for (int i = 0; i < static_cast<int>(schedule.ops.size()); ++i)
    if (print(schedule.ops[static_cast<std::size_t>(i)], model).starts_with(text)) return i;
  return -1;
}

/// Whether `second` waits for `first`, directly or through others, within one step.
bool waits(const Schedule& schedule, const model::Model& model, int first, int second) {
  const std::vector<Need> edges = needs(schedule, model);
  std::vector<bool> reached(schedule.ops.size(), false);
  reached[static_cast<std::size_t>(first)] = true;
  for (int i = first + 1; i <= second; ++i)
    for (const Need& need : edges)
      if (need.to == i && need.distance == 0 && reached[static_cast<std::size_t>(need.from)])
        reached[static_cast<std::size_t>(i)] = true;
  return reached[static_cast<std::size_t>(second)];
}

TEST(TensorSchedule, LetsWeightGradientsRunWhileInputGradientsAreSummed) {
  for (const bool sequence_parallel : {true, false}) {
    const model::Model model = partitioned_llama(sequence_parallel);
    const Schedule schedule = build_step(model, 1, {});
    const int sum =
        find(schedule, model,
             sequence_parallel ? "scatter_sequence b0.mlp m0 backward" : "all_reduce_activation b0.mlp m0 b");
    ASSERT_GE(sum, 0);
    EXPECT_FALSE(waits(schedule, model, sum, find(schedule, model, "backward_weight b0.mlp")));
    EXPECT_TRUE(waits(schedule, model, sum, find(schedule, model, "backward b0.mlp_norm")));
  }
}

TEST(TensorSchedule, GathersABranchsInputAgainWhileItsInputsGradientIsComputed) {
  const model::Model model = partitioned_llama(true);
  const Schedule schedule = build_step(model, 1, {});
  const int gather = find(schedule, model, "gather_sequence b0.mlp m0 again");
  EXPECT_FALSE(waits(schedule, model, gather, find(schedule, model, "backward_input b0.mlp")));
  EXPECT_TRUE(waits(schedule, model, gather, find(schedule, model, "backward_weight b0.mlp")));
}

struct Broken {
  std::string name, from, to, says;
  bool sequence_parallel = true;
  config::Offload offload = config::Offload::none;
};

class BrokenTensorSchedule : public ::testing::TestWithParam<Broken> {};

TEST_P(BrokenTensorSchedule, IsRejectedAtTheOp) {
  const Broken& b = GetParam();
  const model::Model model = partitioned_llama(b.sequence_parallel);
  std::string text = step_text(
      model, 2, {.activation_offload = {.on = b.offload != config::Offload::none}, .offload = {.what = b.offload}});
  const std::size_t at = text.find(b.from);
  ASSERT_NE(at, std::string::npos) << b.from << " is not in\n" << text;
  text.replace(at, b.from.size(), b.to);
  EXPECT_THAT(verify(parse(text, model), model, 1), Contains(HasSubstr(b.says)));
}

INSTANTIATE_TEST_SUITE_P(
    , BrokenTensorSchedule,
    ::testing::Values(
        Broken{"NotGathered", "gather_sequence b0.mlp m0\n", "", "reads a sequence that was not gathered"},
        Broken{"NotScattered", "scatter_sequence b0.mlp m0\n", "", "comes before `scatter_sequence b0.mlp m0`"},
        Broken{"GatheredTwice", "gather_sequence b0.mlp m0\n", "gather_sequence b0.mlp m0\ngather_sequence b0.mlp m0\n",
               "gathers what is there already"},
        Broken{"SummedTwice", "scatter_sequence b0.mlp m0\n",
               "scatter_sequence b0.mlp m0\nscatter_sequence b0.mlp m0\n", "no stage before it has left"},
        Broken{"GradientNotGathered", "gather_sequence b0.mlp m0 backward\n", "",
               "reads a sequence that was not gathered"},
        Broken{"GradientNotSummed", "scatter_sequence b0.mlp m0 backward\n", "",
               "comes before `scatter_sequence b0.mlp m0 backward`"},
        Broken{"InputNotMadeAgain", "recompute_norm b0.mlp_norm m0\n", "", "gathers what was not computed again"},
        Broken{"InputNotGatheredAgain", "gather_sequence b0.mlp m0 again\n", "",
               "reads a sequence that was not gathered"},
        Broken{"WeightsBeforeInput", "backward_input b0.mlp m0\n", "", "has no backward_input before it"},
        Broken{"LossUnknown", "gather_vocabulary head.logits m0\n", "",
               "comes before `gather_vocabulary head.logits m0`"},
        Broken{"CopiesNotSummed", "all_reduce_replicated b0\n", "", "was not summed over its copies"},
        Broken{"CopiesSummedTwice", "all_reduce_replicated b0\n",
               "all_reduce_replicated b0\nall_reduce_replicated b0\n", "a second time"},
        Broken{"ActivationNotSummed", "all_reduce_activation b0.mlp m0\n", "",
               "comes before `all_reduce_activation b0.mlp m0`", false},
        Broken{"ActivationGradientNotSummed", "all_reduce_activation b0.mlp m0 backward\n", "",
               "comes before `all_reduce_activation b0.mlp m0 backward`", false},
        Broken{"SquaresBeforeTheSumOfCopies", "all_reduce_replicated b0\nsum_squares b0\n",
               "sum_squares b0\nall_reduce_replicated b0\n", "comes before the copies on the tensor axis have summed",
               true, config::Offload::optimizer},
        Broken{"CopiesSummedBeforeTheGradientIsOnTheHost", "offload_gradient b0 <- down1.1 add\n",
               "all_reduce_replicated b0\noffload_gradient b0 <- down1.1 add\n",
               "misses a gradient that is not on the host yet", true, config::Offload::optimizer},
        Broken{"InputMadeAgainOfActivationsOnTheHost", "reload b0 m0\n", "",
               "`recompute_norm b0.mlp_norm m0`: reads activations that are in host memory", true,
               config::Offload::optimizer}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace trireme::schedule::tensor_test
