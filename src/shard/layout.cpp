// SPDX-License-Identifier: Apache-2.0
#include "trireme/shard/layout.hpp"

#include <algorithm>

#include "trireme/base/error.hpp"

namespace trireme::shard {

namespace {

std::int64_t round_up(std::int64_t value, std::int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

}  // namespace

BlockLayout::BlockLayout(const model::ParameterBlock& block, int shards)
    : shards_(shards), parts_(shards == 1 ? 1 : block.parts) {
  invariant(shards >= 1, "a block is cut into at least one shard");
  const auto count = static_cast<int>(block.parameters.size());
  invariant(shards % parts_ == 0 && count % parts_ == 0, "the parts of a block divide its shards and parameters");
  std::int64_t end = 0;
  for (int part = 0; part < parts_; ++part) {
    for (int p = part * count / parts_; p < (part + 1) * count / parts_; ++p) {
      const std::int64_t begin = round_up(end, alignment);
      end = begin + block.parameters[static_cast<std::size_t>(p)].elements();
      ranges_.push_back({.begin = begin, .end = end});
    }
    end = round_up(end, gathering() * alignment);
  }
  padded_ = end;
  invariant(padded_ % (shards * alignment) == 0, "the parts of a block are equally long");
}

std::vector<Slice> BlockLayout::slices(int rank) const {
  invariant(rank >= 0 && rank < shards_, "a shard rank lies within its axis");
  const Range mine = shard(rank);
  std::vector<Slice> pieces;
  for (int i = 0; i < parameters(); ++i) {
    const Range whole = range(i);
    const Range common{.begin = std::max(whole.begin, mine.begin), .end = std::min(whole.end, mine.end)};
    if (common.empty()) continue;
    pieces.push_back({.parameter = i,
                      .elements = {.begin = common.begin - whole.begin, .end = common.end - whole.begin},
                      .offset = common.begin - mine.begin});
  }
  return pieces;
}

Layout::Layout(const model::Model& model, int shards)
    : shards_(shards), tensor_rank_(model.part.rank), tensor_ranks_(model.part.ranks) {
  blocks_.reserve(model.parameter_blocks.size());
  for (const model::ParameterBlock& block : model.parameter_blocks)
    blocks_.emplace_back(block, block.of_experts ? shards * model.part.ranks : shards);
}

std::int64_t Layout::shard_elements() const {
  std::int64_t sum = 0;
  for (const BlockLayout& block : blocks_) sum += block.shard_elements();
  return sum;
}

std::int64_t Layout::padded() const {
  std::int64_t sum = 0;
  for (const BlockLayout& block : blocks_) sum += block.padded();
  return sum;
}

}  // namespace trireme::shard
