// SPDX-License-Identifier: Apache-2.0
#include "trireme/shard/copies.hpp"

#include <algorithm>

#include "trireme/model/tensor_plan.hpp"

namespace trireme::shard {

CopiedRanges copied_ranges(const model::ParameterBlock& block, const BlockLayout& layout, int rank) {
  CopiedRanges found;
  for (const Slice& slice : layout.slices(rank)) {
    const auto& partition = block.parameters[static_cast<std::size_t>(slice.parameter)].partition;
    if (!partition || !partition->sum_gradient) continue;
    const Range range{.begin = slice.offset, .end = slice.offset + slice.elements.size()};
    const bool everywhere = partition->split == model::Split::replicated || partition->parts == 1;
    (everywhere ? found.everywhere : found.in_groups).push_back(range);
    if (!everywhere) found.group = partition->copies;
  }
  return found;
}

std::int64_t elements(const std::vector<Range>& ranges) {
  std::int64_t sum = 0;
  for (const Range& range : ranges) sum += range.size();
  return sum;
}

int kv_replication_group(const model::Model& model) {
  for (const model::ParameterBlock& block : model.parameter_blocks)
    for (const model::Parameter& parameter : block.parameters)
      if (parameter.partition && parameter.partition->copies > 1 && parameter.partition->parts > 1)
        return parameter.partition->copies;
  return 1;
}

std::vector<Range> counted_ranges(const model::ParameterBlock& block, const BlockLayout& layout, int rank) {
  const auto counts = [&](const Slice& slice) {
    const auto& partition = block.parameters[static_cast<std::size_t>(slice.parameter)].partition;
    return !partition || partition->copy == 0;
  };
  const std::vector<Slice> slices = layout.slices(rank);
  if (std::all_of(slices.begin(), slices.end(), counts)) return {{.begin = 0, .end = layout.shard_elements()}};
  std::vector<Range> ranges;
  bool joined = false;  // the slice before counts, too
  for (const Slice& slice : slices) {
    const std::int64_t end = slice.offset + slice.elements.size();
    if (!counts(slice)) {
      joined = false;
    } else if (joined) {
      ranges.back().end = end;
    } else {
      ranges.push_back({.begin = slice.offset, .end = end});
      joined = true;
    }
  }
  return ranges;
}

std::vector<Slice> whole_slices(const model::ParameterBlock& block, const BlockLayout& layout, int rank,
                                Copies copies) {
  std::vector<Slice> pieces;
  for (const Slice& slice : layout.slices(rank)) {
    const model::Parameter& parameter = block.parameters[static_cast<std::size_t>(slice.parameter)];
    if (copies == Copies::first && parameter.partition && parameter.partition->copy != 0) continue;
    for (const model::Extent& run : model::extents(parameter, slice.elements.begin, slice.elements.end))
      pieces.push_back({.parameter = slice.parameter,
                        .elements = {.begin = run.whole, .end = run.whole + run.count},
                        .offset = slice.offset + run.held - slice.elements.begin});
  }
  return pieces;
}

std::vector<Range> without_gradient(const model::ParameterBlock& block, const BlockLayout& layout, int rank) {
  std::vector<Range> ranges;
  std::int64_t end = 0;
  const auto until = [&](std::int64_t begin) {
    if (begin > end) ranges.push_back({.begin = end, .end = begin});
  };
  for (const Slice& piece : whole_slices(block, layout, rank)) {
    if (block.parameters[static_cast<std::size_t>(piece.parameter)].role == model::Role::router_bias) continue;
    until(piece.offset);
    end = piece.offset + piece.elements.size();
  }
  until(layout.shard_elements());
  return ranges;
}

}  // namespace trireme::shard
