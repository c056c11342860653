// SPDX-License-Identifier: Apache-2.0
#include "trireme/shard/copies.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "small_model.hpp"

namespace trireme::shard {
namespace {

TEST(WithoutGradient, AreGapsAndRowsThatPadTheVocabulary) {
  // 26 rows of 36 on each of 4 ranks, 23 on the last; 936 elements end 24 before a multiple of 64.
  const auto of_embedding = [](int tensor_rank) {
    const model::Model model = model::build(small_model(), {.rank = tensor_rank, .ranks = 4});
    return without_gradient(model[ParamBlock{0}], Layout(model, 1)[ParamBlock{0}], 0);
  };
  EXPECT_EQ(of_embedding(0), (std::vector<Range>{{.begin = 26 * 36, .end = 960}}));
  EXPECT_EQ(of_embedding(3), (std::vector<Range>{{.begin = 23 * 36, .end = 960}}));
}

TEST(WithoutGradient, IsTheBiasOfARouterWhichIsNoGapOfItsBlock) {
  config::Model experts = small_model();
  experts.architecture = "glm4_moe";
  experts.experts = 4;
  experts.experts_per_token = 2;
  experts.shared_size = 52;
  const model::Model model = model::build(experts);
  bool seen = false;
  for (int b = 0; b < model.param_blocks(); ++b) {
    const model::ParameterBlock& block = model[ParamBlock{b}];
    const BlockLayout layout(block, 1);
    const std::vector<Range> found = without_gradient(block, layout, 0);
    for (int p = 0; p < layout.parameters(); ++p) {
      const Range parameter = layout.range(p);
      const bool bias = block.parameters[static_cast<std::size_t>(p)].role == model::Role::router_bias;
      seen = seen || bias;
      const auto touches = [&](const Range& range) {
        return range.begin < parameter.end && parameter.begin < range.end;
      };
      EXPECT_EQ(std::ranges::any_of(found, touches), bias) << block.parameters[static_cast<std::size_t>(p)].name;
    }
  }
  EXPECT_TRUE(seen);
}

TEST(WithoutGradient, AndPiecesOfParametersCoverEveryShard) {
  for (const int tensor : {1, 2, 4})
    for (int part = 0; part < tensor; ++part) {
      const model::Model model = model::build(small_model(), {.rank = part, .ranks = tensor});
      for (const int shards : {1, 2, 3, 5})
        for (int b = 0; b < model.param_blocks(); ++b)
          for (int rank = 0; rank < shards; ++rank) {
            const BlockLayout layout(model[ParamBlock{b}], shards);
            std::int64_t covered = elements(without_gradient(model[ParamBlock{b}], layout, rank));
            for (const Slice& piece : whole_slices(model[ParamBlock{b}], layout, rank))
              covered += piece.elements.size();
            EXPECT_EQ(covered, layout.shard_elements());
          }
    }
}

}  // namespace
}  // namespace trireme::shard
