// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <compare>
#include <cstdint>
#include <functional>

namespace trireme {

/// An integer that cannot be mistaken for another kind of integer. `Tag` names the kind.
template <class Tag, class Value = int>
struct StrongId {
  Value value{};
  friend constexpr auto operator<=>(StrongId, StrongId) = default;
};

/// Index of a compute block in the model: embedding, transformer blocks, head.
using Block = StrongId<struct BlockTag>;
/// Index of a parameter block: the unit of sharding; with tied embeddings two compute blocks read one of them.
using ParamBlock = StrongId<struct ParamBlockTag>;
/// Index of a stage within its compute block.
using Stage = StrongId<struct StageTag>;
/// Microbatch of a step, from 0.
using Microbatch = StrongId<struct MicrobatchTag>;
/// Rank in the whole job.
using Rank = StrongId<struct RankTag>;
/// Corrected global data-parallel rank: replicate_rank * shard_size + shard_rank.
using DpRank = StrongId<struct DpRankTag>;

}  // namespace trireme

template <class Tag, class Value>
struct std::hash<trireme::StrongId<Tag, Value>> {
  std::size_t operator()(trireme::StrongId<Tag, Value> id) const noexcept { return std::hash<Value>{}(id.value); }
};
