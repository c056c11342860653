// SPDX-License-Identifier: Apache-2.0
#include "trireme/shard/hyperslab.hpp"

#include <gtest/gtest.h>

#include <map>

#include "small_model.hpp"
#include "trireme/shard/copies.hpp"

namespace trireme::shard {
namespace {

std::vector<Slice> unfolded(const std::vector<StridedSlice>& folded) {
  std::vector<Slice> slices;
  for (const StridedSlice& one : folded)
    for (std::int64_t run = 0; run < one.hyperslab.count; ++run) {
      const std::int64_t begin = one.hyperslab.first + run * one.hyperslab.stride;
      slices.push_back({.parameter = one.parameter,
                        .elements = {.begin = begin, .end = begin + one.hyperslab.length},
                        .offset = one.offset + run * one.hyperslab.length});
    }
  return slices;
}

TEST(Fold, PutsRowsOfColumnsTogetherAndLosesNothing) {
  for (const int tensor : {1, 2, 4})
    for (int part = 0; part < tensor; ++part) {
      const model::Model model = model::build(small_model(), {.rank = part, .ranks = tensor});
      for (const int shards : {1, 2, 3, 5}) {
        const Layout layout(model, shards);
        for (int b = 0; b < model.param_blocks(); ++b)
          for (int rank = 0; rank < shards; ++rank) {
            const model::ParameterBlock& block = model[ParamBlock{b}];
            const std::vector<Slice> slices = whole_slices(block, layout[ParamBlock{b}], rank);
            const std::vector<StridedSlice> folded = fold(block, slices);
            EXPECT_EQ(unfolded(folded), slices);
            std::map<int, int> of_parameter;
            for (const StridedSlice& one : folded) EXPECT_LE(++of_parameter[one.parameter], 3);
          }
      }
    }
}

}  // namespace
}  // namespace trireme::shard
