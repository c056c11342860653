// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "trireme/base/ids.hpp"
#include "trireme/mesh/groups.hpp"
#include "trireme/model/model.hpp"

/// Owner of every element of every parameter: the single source for sharding, checkpoints and resharding.
namespace trireme::shard {

/// Every parameter starts at a multiple of this many elements, so offsets are the same in fp32 and bf16.
inline constexpr std::int64_t alignment = 64;

/// The group that gathers a block and reduces its gradients.
[[nodiscard]] inline mesh::Group gathering_group(const model::ParameterBlock& block) {
  return block.of_experts ? mesh::Group::expert_shard : mesh::Group::shard;
}

/// Half-open range of elements.
struct Range {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  [[nodiscard]] std::int64_t size() const { return end - begin; }
  [[nodiscard]] bool empty() const { return end <= begin; }
  friend bool operator==(const Range&, const Range&) = default;
};

/// A piece of one parameter inside a shard: `elements` of the parameter, at `offset` of the shard.
struct Slice {
  int parameter = 0;        ///< index in the block
  Range elements;           ///< of the parameter, row-major
  std::int64_t offset = 0;  ///< of the first one, in the shard
  friend bool operator==(const Slice&, const Slice&) = default;
};

/// The flat buffer of one parameter block, cut into `shards` equal slices. Gaps between parameters and the tail are
/// zero. A block in parts (experts over expert ranks) has each part's slices on every parts-th rank, so that neighbours
/// have different parts: those ranks gather it, and no rank gathers the whole. One shard has all parts.
class BlockLayout {
 public:
  /// Throws BugError when the parts do not divide the shards.
  BlockLayout(const model::ParameterBlock& block, int shards);

  [[nodiscard]] int shards() const { return shards_; }
  /// Number of ranks in a gather: all shards, or those of the rank's part.
  [[nodiscard]] int gathering() const { return shards_ / parts_; }
  /// Elements that they gather.
  [[nodiscard]] std::int64_t gathered() const { return padded_ / parts_; }
  /// The range of the flat buffer that rank `rank` gathers.
  [[nodiscard]] Range gathered_by(int rank) const {
    const int part = rank % parts_;
    return {part * gathered(), (part + 1) * gathered()};
  }
  [[nodiscard]] int parameters() const { return static_cast<int>(ranges_.size()); }
  /// Elements of the whole buffer: a multiple of shards * alignment.
  [[nodiscard]] std::int64_t padded() const { return padded_; }
  [[nodiscard]] std::int64_t shard_elements() const { return padded_ / shards_; }
  /// Range of parameter `index` in the flat buffer.
  [[nodiscard]] Range range(int index) const { return ranges_[static_cast<std::size_t>(index)]; }
  /// Part of the flat buffer in shard `rank`.
  [[nodiscard]] Range shard(int rank) const {
    const int slice = rank % parts_ * gathering() + rank / parts_;
    return {slice * shard_elements(), (slice + 1) * shard_elements()};
  }
  /// The pieces of parameters that shard `rank` holds, in order; empty when it holds padding only.
  [[nodiscard]] std::vector<Slice> slices(int rank) const;

 private:
  int shards_;
  int parts_;
  std::int64_t padded_ = 0;
  std::vector<Range> ranges_;
};

/// Layouts of all parameter blocks of a model for a number of shards, which is that of the ranks with the same part of
/// the model. Blocks of experts have the same layout on every tensor rank, with different elements.
class Layout {
 public:
  Layout(const model::Model& model, int shards);
  [[nodiscard]] const BlockLayout& operator[](ParamBlock block) const {
    return blocks_[static_cast<std::size_t>(block.value)];
  }
  [[nodiscard]] int blocks() const { return static_cast<int>(blocks_.size()); }
  [[nodiscard]] int shards() const { return shards_; }
  /// Index of a rank's shard of a block, given its index `rank` among the shards of all ranks.
  [[nodiscard]] int shard_of(ParamBlock block, int rank) const {
    return (*this)[block].shards() == shards_ ? rank : rank * tensor_ranks_ + tensor_rank_;
  }
  /// Padded elements over all blocks.
  [[nodiscard]] std::int64_t padded() const;
  /// Elements one rank holds.
  [[nodiscard]] std::int64_t shard_elements() const;

 private:
  int shards_;
  int tensor_rank_, tensor_ranks_;
  std::vector<BlockLayout> blocks_;
};

}  // namespace trireme::shard
