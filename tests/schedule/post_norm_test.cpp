// SPDX-License-Identifier: Apache-2.0
// Branches whose output is normed on the tensor axis: the sum over it goes to the norm, not to the residual stream.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "trireme/schedule/access.hpp"
#include "trireme/schedule/needs.hpp"
#include "trireme/schedule/passes/build.hpp"
#include "trireme/schedule/text.hpp"
#include "trireme/schedule/verify/verify.hpp"

namespace trireme::schedule::post_norm_test {
namespace {

using ::testing::IsEmpty;

model::Model half_of_gemma2(bool sequence_parallel) {
  const config::Model config{.architecture = "gemma2",
                             .vocab_size = 257,
                             .hidden_size = 72,
                             .intermediate_size = 100,
                             .layers = 3,
                             .heads = 6,
                             .kv_heads = 2,
                             .head_dim = 12};
  return model::build(config, {.rank = 0, .ranks = 2, .sequence_parallel = sequence_parallel});
}

/// The lines that name a stage of b1.
std::string lines_of_b1(const Schedule& schedule, const model::Model& model) {
  std::string found;
  for (const Op& op : schedule.ops)
    if (const std::string line = print(op, model); line.find(" b1.") != std::string::npos) found += line + "\n";
  return found;
}

TEST(PostNorm, StandsBehindTheSumOfItsBranch) {
  const model::Model model = half_of_gemma2(true);
  const std::string lines = lines_of_b1(build_step(model, 1, {.recompute = {.mode = config::Recompute::block}}), model);
  EXPECT_NE(lines.find("forward b1.mlp m0 keep input\nscatter_sequence b1.mlp m0\nforward b1.mlp_post_norm m0"),
            std::string::npos)
      << lines;
  EXPECT_NE(lines.find("scatter_sequence b1.mlp m0 recompute\nrecompute b1.mlp_post_norm m0\n"
                       "backward b1.mlp_post_norm m0 -> b1 grad1.1\ngather_sequence b1.mlp m0 backward\n"),
            std::string::npos)
      << lines;
}

std::vector<Resource> reads_of(const std::string& text, const Schedule& schedule, const model::Model& model) {
  for (std::size_t i = 0; i < schedule.ops.size(); ++i)
    if (print(schedule.ops[i], model).starts_with(text)) return accesses(schedule, model)[i].reads;
  ADD_FAILURE() << text;
  return {};
}

TEST(PostNorm, TakesTheStreamsGradientAndGivesTheBranchItsOwn) {
  using ::testing::Contains;
  using ::testing::Not;
  const Resource stream = resource::Hidden{Microbatch{0}}, branch = resource::Branch{Microbatch{0}};
  for (const bool sequence_parallel : {true, false}) {
    const model::Model model = half_of_gemma2(sequence_parallel);
    const Schedule schedule = build_step(model, 1, {});
    const std::string sum = sequence_parallel ? "scatter_sequence b1.mlp m0" : "all_reduce_activation b1.mlp m0";
    EXPECT_THAT(reads_of(sum, schedule, model), Not(Contains(stream)));
    EXPECT_THAT(reads_of("forward b1.mlp_post_norm m0", schedule, model),
                ::testing::AllOf(Contains(stream), Contains(branch)));
    EXPECT_THAT(reads_of("backward b1.mlp_post_norm m0", schedule, model), Contains(stream));
    const std::string first = sequence_parallel ? "gather_sequence b1.mlp m0 backward" : "backward_input b1.mlp m0";
    EXPECT_THAT(reads_of(first, schedule, model), ::testing::AllOf(Contains(branch), Not(Contains(stream))));
  }
}

TEST(PostNorm, IsSoundAndOrderedForEveryPolicyAndParsesBack) {
  using config::Offload;
  for (const bool sequence_parallel : {true, false})
    for (const auto recompute : {config::Recompute::none, config::Recompute::selective, config::Recompute::block})
      for (const auto sync : {config::SyncPolicy::immediate, config::SyncPolicy::deferred})
        for (const Offload offload : {Offload::none, Offload::optimizer, Offload::parameters}) {
          const model::Model model = half_of_gemma2(sequence_parallel);
          const Policy policy{.sync = sync,
                              .recompute = {.mode = recompute, .every = offload == Offload::none ? 2 : 1},
                              .activation_offload = {.on = offload == Offload::parameters},
                              .offload = {.what = offload}};
          const Schedule schedule = build_step(model, 2, policy);
          EXPECT_THAT(verify(schedule, model, 1), IsEmpty());
          EXPECT_THAT(verify_needs(schedule, model, needs(schedule, model)), IsEmpty());
          EXPECT_EQ(parse(print(schedule, model), model), schedule);
        }
}

}  // namespace
}  // namespace trireme::schedule::post_norm_test
