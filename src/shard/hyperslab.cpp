// SPDX-License-Identifier: Apache-2.0
#include "trireme/shard/hyperslab.hpp"

namespace trireme::shard {
namespace {

/// Whether `next` is the next run of `last`, in a parameter of rows of `columns`.
bool goes_on(const StridedSlice& last, const Slice& next, std::int64_t columns) {
  const Hyperslab& hyperslab = last.hyperslab;
  return last.parameter == next.parameter && hyperslab.length == next.elements.size() &&
         next.offset == last.offset + hyperslab.size() &&
         next.elements.begin == hyperslab.first + hyperslab.count * columns &&
         hyperslab.first % columns + hyperslab.length <= columns;
}

}  // namespace

std::vector<StridedSlice> fold(const model::ParameterBlock& block, const std::vector<Slice>& slices) {
  std::vector<StridedSlice> folded;
  for (const Slice& slice : slices) {
    const std::int64_t columns = block.parameters[static_cast<std::size_t>(slice.parameter)].full_shape().back();
    if (!folded.empty() && goes_on(folded.back(), slice, columns)) {
      folded.back().hyperslab.stride = columns;
      ++folded.back().hyperslab.count;
    } else {
      folded.push_back(
          {.parameter = slice.parameter, .hyperslab = Hyperslab::of(slice.elements), .offset = slice.offset});
    }
  }
  return folded;
}

}  // namespace trireme::shard
