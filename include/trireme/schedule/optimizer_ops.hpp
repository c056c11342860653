// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>

#include "trireme/base/ids.hpp"

/// Verbs of a step's tail, and of the memory that it needs.
namespace trireme::schedule {

/// Computes the global gradient norm, the clip factor, and the step's loss; agrees whether the step is skipped.
struct ClipNorm {
  friend bool operator==(const ClipNorm&, const ClipNorm&) = default;
};
/// Applies the optimizer to this rank's shard of `block`, on the host with `on_host`. The second flag selects a
/// separate lane, concurrent with the next step's forward, which waits for a block's update before its first read.
/// `matrices`: slot of the orthogonalized matrices that the block's parameters are updated with.
struct Update {
  ParamBlock block;
  bool on_host = false;
  bool beside = false;
  std::optional<int> matrices{};
  friend bool operator==(const Update&, const Update&) = default;
};

// Muon. Each matrix is orthogonalized as a whole by one rank of a fold, its owner (optimizer::OwnerPlan). The matrices
// of consecutive blocks are exchanged at once, in one of two slots.

/// Blocks from `first` to `last` whose matrices are exchanged at once, and the slot of their messages. The flag selects
/// the lane of updates that run concurrently with the next step's forward.
struct Matrices {
  ParamBlock first, last;
  int slot = 0;
  bool beside = false;
  friend bool operator==(const Matrices&, const Matrices&) = default;
};
/// Updates the momentum of this rank's pieces of matrices, and writes what is orthogonalized into the slot, by owner.
struct PrepareMatrices {
  Matrices of;
  friend bool operator==(const PrepareMatrices&, const PrepareMatrices&) = default;
};
/// Sends the pieces to the owners of their matrices.
struct GatherMatrices {
  Matrices of;
  friend bool operator==(const GatherMatrices&, const GatherMatrices&) = default;
};
/// Orthogonalizes the matrices that this rank owns by Newton-Schulz iterations. `in_place`: this rank has all of each
/// matrix, and nothing is exchanged.
struct Orthogonalize {
  Matrices of;
  bool in_place = false;
  friend bool operator==(const Orthogonalize&, const Orthogonalize&) = default;
};
/// Sends the pieces of the orthogonalized matrices back to all ranks that hold them.
struct ScatterMatrices {
  Matrices of;
  friend bool operator==(const ScatterMatrices&, const ScatterMatrices&) = default;
};

/// Allocates the gradient shard of `block`, before the step's first op that writes it.
struct AllocateGradient {
  ParamBlock block;
  friend bool operator==(const AllocateGradient&, const AllocateGradient&) = default;
};
/// Frees the gradient shard after the block's update: at once or, if updates run concurrently with the forward, before
/// the next step's first op that reads the block.
struct FreeGradient {
  ParamBlock block;
  friend bool operator==(const FreeGradient&, const FreeGradient&) = default;
};

}  // namespace trireme::schedule
