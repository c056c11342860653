// SPDX-License-Identifier: Apache-2.0
#include "trireme/shard/layout.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "trireme/base/error.hpp"

namespace trireme::shard {
namespace {

model::ParameterBlock block_of(const std::vector<std::vector<std::int64_t>>& shapes) {
  model::ParameterBlock block{.name = "block", .parameters = {}};
  for (const auto& shape : shapes) block.parameters.push_back({.name = "parameter", .shape = shape});
  return block;
}

/// Prime sizes, sizes on the alignment, sizes of one, rows that no shard boundary respects.
std::vector<model::ParameterBlock> blocks() {
  return {block_of({{1}}),
          block_of({{64}}),
          block_of({{65}}),
          block_of({{7, 13}, {1}, {128}, {101}}),
          block_of({{24}, {24, 24}, {8, 24}, {8, 24}, {24, 24}, {24}, {50, 24}, {50, 24}, {24, 50}}),
          block_of({{997}, {2, 1009}}),
          block_of({{64}, {64}, {64}}),
          block_of({})};
}

constexpr int most_shards = 9;

TEST(BlockLayout, StartsEveryParameterAlignedAndInOrder) {
  for (const model::ParameterBlock& block : blocks()) {
    const BlockLayout layout(block, 3);
    std::int64_t end = 0;
    for (int i = 0; i < layout.parameters(); ++i) {
      EXPECT_EQ(layout.range(i).begin % alignment, 0);
      EXPECT_EQ(layout.range(i).size(), block.parameters[static_cast<std::size_t>(i)].elements());
      EXPECT_GE(layout.range(i).begin, end);
      EXPECT_LT(layout.range(i).begin - end, alignment);
      end = layout.range(i).end;
    }
    EXPECT_GE(layout.padded(), end);
    EXPECT_LT(layout.padded() - end, 3 * alignment);
  }
}

TEST(BlockLayout, PutsParametersAtTheSameOffsetsForEveryShardCount) {
  for (const model::ParameterBlock& block : blocks()) {
    const BlockLayout one(block, 1);
    for (int shards = 2; shards <= most_shards; ++shards) {
      const BlockLayout many(block, shards);
      for (int i = 0; i < one.parameters(); ++i) EXPECT_EQ(many.range(i), one.range(i));
    }
  }
}

TEST(BlockLayout, GivesThePartsOfABlockToNeighboursInTurn) {
  model::ParameterBlock block = block_of({{7, 13}, {5}, {64}, {7, 13}, {5}, {64}, {7, 13}, {5}, {64}});
  block.parts = 3;
  for (const int shards : {3, 6, 9, 12}) {
    const BlockLayout layout(block, shards);
    EXPECT_EQ(layout.gathering(), shards / 3);
    EXPECT_EQ(layout.gathered() * 3, layout.padded());
    std::vector<std::int64_t> held(9, 0);
    for (int rank = 0; rank < shards; ++rank) {
      const Range part = layout.gathered_by(rank), mine = layout.shard(rank);
      EXPECT_EQ(part.begin, rank % 3 * layout.gathered());
      EXPECT_EQ(mine.begin, part.begin + rank / 3 * layout.shard_elements()) << "in the order of those that gather it";
      EXPECT_EQ(mine.size(), layout.shard_elements());
      for (const Slice& slice : layout.slices(rank)) {
        EXPECT_EQ(slice.parameter / 3, rank % 3) << "of its own part only";
        held[static_cast<std::size_t>(slice.parameter)] += slice.elements.size();
      }
    }
    for (int p = 0; p < 9; ++p)
      EXPECT_EQ(held[static_cast<std::size_t>(p)], block.parameters[static_cast<std::size_t>(p)].elements());
  }
  EXPECT_EQ(BlockLayout(block, 1).gathered(), BlockLayout(block, 1).padded()) << "one shard has all parts";
  EXPECT_THROW(BlockLayout(block, 4), BugError);
}

TEST(Layout, GivesEveryTensorRankOtherShardsOfExperts) {
  model::Model model;
  model.parameter_blocks = {block_of({{7, 13}}), block_of({{7, 13}, {64}, {7, 13}, {64}})};
  model.parameter_blocks[1].of_experts = true;
  model.parameter_blocks[1].parts = 2;
  const ParamBlock dense{0}, experts{1};
  std::set<int> seen;
  for (int tensor = 0; tensor < 2; ++tensor) {
    model.part = {.rank = tensor, .ranks = 2};
    const Layout layout(model, 3);
    EXPECT_EQ(layout[dense].shards(), 3);
    EXPECT_EQ(layout[experts].shards(), 6);
    EXPECT_EQ(layout[experts].gathering(), 3);
    EXPECT_EQ(layout.shard_elements(), layout[dense].shard_elements() + layout[experts].shard_elements());
    for (int rank = 0; rank < 3; ++rank) {
      EXPECT_EQ(layout.shard_of(dense, rank), rank);
      EXPECT_EQ(layout.shard_of(experts, rank), 2 * rank + tensor) << "tensor ranks are the fastest of a fold";
      seen.insert(layout.shard_of(experts, rank));
    }
  }
  EXPECT_EQ(seen.size(), 6U);
}

TEST(BlockLayout, CutsEqualAlignedShards) {
  for (const model::ParameterBlock& block : blocks()) {
    for (int shards = 1; shards <= most_shards; ++shards) {
      const BlockLayout layout(block, shards);
      EXPECT_EQ(layout.padded() % (shards * alignment), 0);
      EXPECT_EQ(layout.shard(0).begin, 0);
      for (int r = 1; r < shards; ++r) EXPECT_EQ(layout.shard(r).begin, layout.shard(r - 1).end);
      EXPECT_EQ(layout.shard(shards - 1).end, layout.padded());
    }
  }
}

TEST(Slices, OfAllShardsCoverEveryElementExactlyOnce) {
  for (const model::ParameterBlock& block : blocks()) {
    for (int shards = 1; shards <= most_shards; ++shards) {
      const BlockLayout layout(block, shards);
      std::vector<std::vector<int>> seen;
      for (const model::Parameter& p : block.parameters) seen.emplace_back(static_cast<std::size_t>(p.elements()), 0);
      for (int r = 0; r < shards; ++r) {
        for (const Slice& slice : layout.slices(r)) {
          for (std::int64_t e = slice.elements.begin; e < slice.elements.end; ++e) {
            ++seen[static_cast<std::size_t>(slice.parameter)].at(static_cast<std::size_t>(e));
          }
        }
      }
      for (const std::vector<int>& parameter : seen) {
        EXPECT_TRUE(std::all_of(parameter.begin(), parameter.end(), [](int times) { return times == 1; }));
      }
    }
  }
}

TEST(Slices, LieWhereTheFlatBufferHasThem) {
  for (const model::ParameterBlock& block : blocks()) {
    for (int shards = 1; shards <= most_shards; ++shards) {
      const BlockLayout layout(block, shards);
      for (int r = 0; r < shards; ++r) {
        std::int64_t end = 0;
        for (const Slice& slice : layout.slices(r)) {
          EXPECT_FALSE(slice.elements.empty());
          EXPECT_GE(slice.offset, end);
          end = slice.offset + slice.elements.size();
          EXPECT_LE(end, layout.shard_elements());
          EXPECT_EQ(layout.shard(r).begin + slice.offset, layout.range(slice.parameter).begin + slice.elements.begin);
        }
      }
    }
  }
}

TEST(Slices, AreEmptyWhereAShardHoldsPaddingOnly) {
  const BlockLayout layout(block_of({{65}}), 5);
  EXPECT_EQ(layout.slices(0), (std::vector<Slice>{{.parameter = 0, .elements = {.begin = 0, .end = 64}, .offset = 0}}));
  EXPECT_EQ(layout.slices(1),
            (std::vector<Slice>{{.parameter = 0, .elements = {.begin = 64, .end = 65}, .offset = 0}}));
  for (int r = 2; r < 5; ++r) EXPECT_TRUE(layout.slices(r).empty());
}

TEST(Slices, MayCutARow) {
  const BlockLayout layout(block_of({{3, 100}}), 2);
  ASSERT_EQ(layout.shard_elements(), 192);
  EXPECT_EQ(layout.slices(0).front().elements, (Range{.begin = 0, .end = 192}));
  EXPECT_EQ(layout.slices(1).front().elements, (Range{.begin = 192, .end = 300}));
}

TEST(Layout, AddsUpTheBlocksOfAModel) {
  config::Model config;
  config.vocab_size = 97;
  config.hidden_size = 24;
  config.intermediate_size = 50;
  config.layers = 2;
  config.heads = 6;
  for (const bool tied : {false, true}) {
    config.tie_embeddings = tied;
    const model::Model model = model::build(config);
    for (int shards = 1; shards <= most_shards; ++shards) {
      const Layout layout(model, shards);
      ASSERT_EQ(layout.blocks(), model.param_blocks());
      std::int64_t padded = 0;
      for (int b = 0; b < layout.blocks(); ++b) padded += layout[ParamBlock{b}].padded();
      EXPECT_EQ(layout.padded(), padded);
      EXPECT_EQ(layout.shard_elements() * shards, padded);
    }
  }
}

TEST(BlockLayout, TreatsAShardOutsideOfItAsABug) {
  EXPECT_THROW(BlockLayout(block_of({{1}}), 0), BugError);
  const BlockLayout layout(block_of({{1}}), 2);
  EXPECT_THROW((void)layout.slices(2), BugError);
}

}  // namespace
}  // namespace trireme::shard
