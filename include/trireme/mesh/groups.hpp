// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <string_view>

#include "trireme/mesh/mesh.hpp"

namespace trireme::mesh {

/// The groups of ranks that call collectives together; a rank is in one of every kind. Context ranks share the storage
/// of parameters with shard ranks, and losses are summed over them. dp: all ranks that train on other tokens, ordered
/// by dp rank. pipeline: the ranks that hold the parts of one model and train on the same tokens; tied: the first and
/// the last of them, which both hold a tied embedding; those between are single. shard_group: neighbours on the shard
/// axis that keep a copy of the parameters (sync.reshard_after_forward). expert: neighbours of a fold, shard x context
/// x tensor, that exchange rows for their experts; expert_shard: ranks of the fold with the same experts; fold: all of
/// its ranks, which exchange matrices with their owners (Muon). sequence: ranks that have other tokens of the same
/// sequences. tensor_group: neighbours on the tensor axis that share key and value heads.
enum class Group {
  replicate,
  shard,
  context,
  tensor,
  dp,
  pipeline,
  tied,
  shard_group,
  tensor_group,
  expert,
  expert_shard,
  fold,
  sequence
};

/// The ranks of a group among those that differ along its axes: all, consecutive ones, those at equal distances, or the
/// first and the last.
enum class Members { all, neighbours, strided, ends };

/// One kind of group.
struct GroupRow {
  Group group;
  std::string_view name;
  Axes axes;                 ///< along which its ranks differ
  std::string_view traffic;  ///< under which its traffic is counted
  Members members = Members::all;
};

/// The axes out of which expert ranks are folded (MoE Parallel Folding, Liu et al. 2025).
inline constexpr Axes fold{Axis::shard, Axis::context, Axis::tensor};

inline constexpr std::array groups{
    GroupRow{Group::replicate, "replicate", Axis::replicate, "replicate"},
    GroupRow{Group::shard, "shard", {Axis::shard, Axis::context}, "shard"},
    GroupRow{Group::context, "context", Axis::context, "context"},
    GroupRow{Group::tensor, "tensor", Axis::tensor, "tensor"},
    GroupRow{Group::dp, "dp", {Axis::replicate, Axis::shard, Axis::context}, "control"},
    GroupRow{Group::pipeline, "pipeline", Axis::pipeline, "pipeline"},
    GroupRow{Group::tied, "tied", Axis::pipeline, "pipeline", Members::ends},
    GroupRow{Group::shard_group, "shard_group", {Axis::shard, Axis::context}, "shard_group", Members::neighbours},
    GroupRow{Group::tensor_group, "tensor_group", Axis::tensor, "tensor_group", Members::neighbours},
    GroupRow{Group::expert, "expert", fold, "expert", Members::neighbours},
    GroupRow{Group::expert_shard, "expert_shard", fold, "expert_shard", Members::strided},
    GroupRow{Group::fold, "fold", fold, "fold"},
    GroupRow{Group::sequence, "sequence", {Axis::context, Axis::tensor}, "expert"},
};

[[nodiscard]] const GroupRow& row_of(Group group);
[[nodiscard]] std::string_view to_text(Group group);

}  // namespace trireme::mesh
