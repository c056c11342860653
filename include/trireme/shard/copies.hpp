// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "trireme/model/model.hpp"
#include "trireme/shard/layout.hpp"

/// Elements of a shard that other ranks of the tensor axis hold, too.
namespace trireme::shard {

/// Elements of a shard whose gradients are summed over copies, in order.
struct CopiedRanges {
  std::vector<Range> everywhere;  ///< over the whole tensor axis
  std::vector<Range> in_groups;   ///< over groups of neighbours on it: shared key and value heads
  int group = 1;                  ///< how many neighbours
};
/// The copied elements in shard `rank` of a block.
[[nodiscard]] CopiedRanges copied_ranges(const model::ParameterBlock& block, const BlockLayout& layout, int rank);
[[nodiscard]] std::int64_t elements(const std::vector<Range>& ranges);

/// Number of neighbours on the tensor axis that share a part of some parameter, if less than the axis; otherwise 1.
[[nodiscard]] int kv_replication_group(const model::Model& model);

/// Elements of shard `rank` that this rank counts in a norm: of every copy the first one's. Neighbours are merged;
/// gaps between parameters, which are zero, may be within.
[[nodiscard]] std::vector<Range> counted_ranges(const model::ParameterBlock& block, const BlockLayout& layout,
                                                int rank);

/// Selects copies of a part that several tensor ranks hold.
enum class Copies { all, first };
/// The pieces of whole parameters in shard `rank`: `Slice::elements` refers to the whole parameter, even if this tensor
/// rank has only a part of it; in order of offsets, without padding. first: excludes elements that a previous tensor
/// rank holds, too. For uncut parameters these are the layout's slices.
[[nodiscard]] std::vector<Slice> whole_slices(const model::ParameterBlock& block, const BlockLayout& layout, int rank,
                                              Copies copies = Copies::all);

/// Elements of shard `rank` that no backward writes, in order: gaps between parameters, rows that pad a vocabulary, the
/// correction bias of a router.
[[nodiscard]] std::vector<Range> without_gradient(const model::ParameterBlock& block, const BlockLayout& layout,
                                                  int rank);

}  // namespace trireme::shard
