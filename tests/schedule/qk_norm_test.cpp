// SPDX-License-Identifier: Apache-2.0
// A norm of queries and keys over heads that the tensor axis divides: a sum over it before the norm, and one before the
// end of its backward.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "schedule/broken_exchanges.hpp"
#include "trireme/schedule/needs.hpp"
#include "trireme/schedule/passes/build.hpp"
#include "trireme/schedule/text.hpp"
#include "trireme/schedule/verify/verify.hpp"

namespace trireme::schedule::qk_norm_test {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

model::Model part_of_olmo(const model::TensorPart& part) {
  return model::build({.architecture = "olmo2",
                       .vocab_size = 257,
                       .hidden_size = 72,
                       .intermediate_size = 100,
                       .layers = 3,
                       .heads = 8,
                       .kv_heads = 4,
                       .head_dim = 12},
                      part);
}

/// The lines that name a stage of b1.
std::string lines_of_b1(const Schedule& schedule, const model::Model& model) {
  std::string found;
  for (const Op& op : schedule.ops)
    if (const std::string line = print(op, model); line.find(" b1.") != std::string::npos) found += line + "\n";
  return found;
}

TEST(QkNorm, ReadsSumsOverAllHeadsInBothDirections) {
  const model::Model model = part_of_olmo({.rank = 0, .ranks = 2, .sequence_parallel = true});
  const std::string lines = lines_of_b1(build_step(model, 1, {.recompute = {.mode = config::Recompute::block}}), model);
  EXPECT_THAT(lines, HasSubstr("forward b1.attention_input m0 keep input\ngather_sequence b1.projection m0\n"
                               "forward b1.projection m0 keep input\nall_reduce_statistics b1.qk_norm m0\n"
                               "forward b1.qk_norm m0 keep input\nforward b1.attention m0 keep input\n"
                               "scatter_sequence b1.attention m0\nforward b1.attention_post_norm m0 keep input\n"));
  EXPECT_THAT(lines, HasSubstr("recompute b1.projection m0\nall_reduce_statistics b1.qk_norm m0 recompute\n"));
  EXPECT_THAT(lines, HasSubstr("backward_input b1.qk_norm m0\nall_reduce_statistics b1.qk_norm m0 backward\n"
                               "backward_weight b1.qk_norm m0 -> b1 "));
}

TEST(QkNorm, NeedsEachOfItsExchanges) {
  // In each direction and layer one of statistics and two of activations; one of the embedding, the vocabulary's, and
  // one behind the head.
  const model::Model model = part_of_olmo({.rank = 1, .ranks = 2, .sequence_parallel = false});
  const Schedule once = build_step(model, 1, {});
  EXPECT_EQ(testing::expect_each_exchange_needed(once, model, Lane::tensor), 3 * 6 + 3);
  const Schedule again = build_step(model, 1, {.recompute = {.mode = config::Recompute::block}});
  EXPECT_EQ(testing::expect_each_exchange_needed(again, model, Lane::tensor), 3 * 9 + 3);
}

TEST(QkNorm, IsSoundAndOrderedOnEveryMeshAndParsesBack) {
  const auto heads = config::ContextMethod::heads;
  for (const model::TensorPart& part : {model::TensorPart{.rank = 0, .ranks = 2, .sequence_parallel = true},
                                        {.rank = 0, .ranks = 4, .sequence_parallel = false},
                                        {.context = {.ranks = 2}},
                                        {.context = {.ranks = 4, .method = heads}},
                                        {.rank = 0, .ranks = 2, .sequence_parallel = true, .context = {.ranks = 2}},
                                        {.rank = 0, .ranks = 2, .context = {.ranks = 2, .method = heads}}})
    for (const auto recompute : {config::Recompute::none, config::Recompute::block})
      for (const auto sync : {config::SyncPolicy::immediate, config::SyncPolicy::deferred}) {
        const model::Model model = part_of_olmo(part);
        const Schedule schedule = build_step(model, 2, {.sync = sync, .recompute = {.mode = recompute}});
        EXPECT_THAT(verify(schedule, model, 1), IsEmpty());
        EXPECT_THAT(verify_needs(schedule, model, needs(schedule, model)), IsEmpty());
        EXPECT_EQ(parse(print(schedule, model), model), schedule);
      }
}

}  // namespace
}  // namespace trireme::schedule::qk_norm_test
