// SPDX-License-Identifier: Apache-2.0
// Layers of each family under tensor parallelism.
#include <gtest/gtest.h>

#include "model/small_architecture.hpp"
#include "trireme/base/error.hpp"
#include "trireme/model/model.hpp"

namespace trireme::model::architecture_tensor_test {
namespace {

/// One of two tensor ranks' part of a small model.
Model half_of(const Architecture& a, bool sequence_parallel) {
  return build(small(a), {.rank = 0, .ranks = 2, .sequence_parallel = sequence_parallel});
}

TEST(Architectures, NormWhatBranchesWriteBehindTheSumOverTheTensorAxis) {
  for (const bool sequence_parallel : {false, true}) {
    const std::vector<Stage> stages = half_of(architecture("gemma2"), sequence_parallel).compute_blocks[1].stages;
    ASSERT_EQ(stages.size(), 6U);
    for (const std::size_t first : {0U, 3U}) {
      EXPECT_EQ(stages[first].kind, StageKind::norm);
      EXPECT_TRUE(is_branch(stages[first + 1].kind) && stages[first + 1].sum_is_normed);
      EXPECT_EQ(stages[first + 1].leave,
                sequence_parallel ? Exchange::scatter_sequence : Exchange::all_reduce_activation);
      EXPECT_EQ(stages[first + 2].kind, StageKind::post_norm);
      EXPECT_EQ(stages[first + 2].parameters.size(), 1U);
    }
    const Model half = half_of(architecture("gemma2"), sequence_parallel);
    for (const Parameter& p : half[ParamBlock{1}].parameters)
      EXPECT_EQ(p.partition->sum_gradient, sequence_parallel && p.name.ends_with("layernorm.weight")) << p.name;
  }
}

TEST(Architectures, AllHaveATensorPlan) {
  for (const Architecture& a : architectures()) {
    const Model half = half_of(a, /*sequence_parallel=*/true);
    EXPECT_EQ(half.elements(), build(small(a)).elements()) << a.name;
    EXPECT_EQ(divides_experts(half), a.decoder.experts.has_value()) << a.name;
  }
}
TEST(Architectures, ThatNormOverAllHeadsShareTheSumsOfTheirSquares) {
  for (const bool sequence_parallel : {false, true}) {
    const Model half = half_of(architecture("olmo2"), sequence_parallel);
    std::vector<StageKind> kinds;
    for (const Stage& stage : half.compute_blocks[1].stages) kinds.push_back(stage.kind);
    using enum StageKind;
    EXPECT_EQ(kinds,
              (std::vector{input, projection, qk_norm, attend, StageKind::post_norm, input, mlp_branch, post_norm}));
    const std::vector<Stage>& stages = half.compute_blocks[1].stages;
    EXPECT_EQ(stages[1].enter, sequence_parallel ? Exchange::gather_sequence : Exchange::all_reduce_activation);
    EXPECT_EQ(stages[1].leave, std::nullopt);
    EXPECT_EQ(stages[2].enter, Exchange::all_reduce_statistics);
    EXPECT_EQ(stages[3].enter, std::nullopt);
    EXPECT_TRUE(stages[3].sum_is_normed);
    for (const Parameter& p : half[ParamBlock{1}].parameters) {
      if (p.role != Role::q_norm && p.role != Role::k_norm) continue;
      EXPECT_EQ(p.partition->split, Split::column) << p.name;
      EXPECT_EQ(p.shape[0] * 2, p.full_shape()[0]) << p.name;
    }
  }
}

TEST(Architectures, SumTheGradientsOfNormsOfHeadsWithoutSequenceParallelismToo) {
  const Model part = build(small(architecture("qwen3")), {.rank = 0, .ranks = 2, .sequence_parallel = false});
  for (const Parameter& p : part[ParamBlock{1}].parameters)
    EXPECT_EQ(p.partition->sum_gradient, p.role == Role::q_norm || p.role == Role::k_norm) << p.name;
}

}  // namespace
}  // namespace trireme::model::architecture_tensor_test
