// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "schedule/models.hpp"
#include "trireme/base/error.hpp"
#include "trireme/model/context.hpp"
#include "trireme/schedule/buffers.hpp"
#include "trireme/schedule/needs.hpp"
#include "trireme/schedule/passes/build.hpp"
#include "trireme/schedule/text.hpp"
#include "trireme/schedule/verify/verify.hpp"

namespace trireme::schedule::kv_cache_test {
namespace {

std::vector<std::string> cached_forwards(const model::Model& model) {
  std::vector<std::string> found;
  for (const Op& op : build_generation(model, {}).ops)
    if (print(op, model).ends_with(" keep kv_cache")) found.push_back(print(op, model));
  return found;
}

TEST(InsertKvCache, IsWhereAttentionIs) {
  using ::testing::ElementsAre;
  EXPECT_THAT(cached_forwards(schedule::testing::llama(2)),
              ElementsAre("forward b0 m0 keep kv_cache", "forward b1 m0 keep kv_cache"));
  const model::TensorPart half{.rank = 0, .ranks = 2, .sequence_parallel = false};
  EXPECT_THAT(cached_forwards(schedule::testing::llama(2, false, half)),
              ElementsAre("forward b0.attention m0 keep kv_cache", "forward b1.attention m0 keep kv_cache"));
}

TEST(InsertKvCache, IsNotThereOfDividedSequences) {
  const model::Model divided = model::divide_sequences(schedule::testing::llama(2), {.rank = 0, .ranks = 2});
  EXPECT_THROW((void)build_generation(divided, {}), BugError);
}

TEST(InsertKvCache, LeavesTheSlotsOfAForward) {
  for (const bool tied : {false, true}) {
    const model::Model model = schedule::testing::llama(3, tied);
    Schedule generation = build_generation(model, {});
    const RingSizes rings = ring_sizes(generation, model);
    for (Op& op : generation.ops)
      if (auto* forward = std::get_if<Forward>(&op)) forward->keep = model::Keep::products;
    EXPECT_EQ(generation, build_forward(model, {}));
    EXPECT_EQ(rings.parameters, ring_sizes(generation, model).parameters);
  }
}

TEST(InsertKvCache, IsReadByTheNextStepAndPrintsAndParses) {
  for (const int ranks : {1, 2}) {
    const model::Model model =
        schedule::testing::llama(2, false, {.rank = 0, .ranks = ranks, .sequence_parallel = false});
    const Schedule s = build_generation(model, {});
    EXPECT_EQ(parse(print(s, model), model), s);
    const std::vector<Need> edges = needs(s, model);
    EXPECT_THAT(verify_needs(s, model, edges), ::testing::IsEmpty());
    int read = 0;
    for (int i = 0; i < static_cast<int>(s.ops.size()); ++i) {
      const auto* forward = std::get_if<Forward>(&s.ops[static_cast<std::size_t>(i)]);
      if (forward == nullptr || forward->keep != model::Keep::kv_cache) continue;
      const Access access = accesses(s, model)[static_cast<std::size_t>(i)];
      const Resource saved = resource::Saved{forward->block, forward->stage.value_or(Stage{0}), forward->microbatch};
      EXPECT_THAT(access.reads, ::testing::Contains(saved));
      EXPECT_THAT(access.writes, ::testing::Contains(saved));
      ++read;
    }
    EXPECT_EQ(read, 2);
  }
}

TEST(InsertKvCache, HasNoPlaceInATrainingStep) {
  const model::Model model = schedule::testing::llama(2);
  EXPECT_THAT(verify(insert_kv_cache(build_step(model, 1, {}), model), model, 1),
              ::testing::Contains(::testing::HasSubstr("reads what its forward did not keep")));
}

}  // namespace
}  // namespace trireme::schedule::kv_cache_test
