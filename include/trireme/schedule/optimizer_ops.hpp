// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "trireme/base/ids.hpp"

/// Verbs of a step's tail, and of the memory that it needs.
namespace trireme::schedule {

/// Computes the global gradient norm, the clip factor, and the step's loss; agrees whether the step is skipped.
struct ClipNorm {
  friend bool operator==(const ClipNorm&, const ClipNorm&) = default;
};
/// Applies the optimizer to this rank's shard of `block`, on the host with `on_host`. The last flag selects a separate
/// lane, concurrent with the next step's forward, which waits for a block's update before its first read.
struct Update {
  ParamBlock block;
  bool on_host = false;
  bool beside = false;
  friend bool operator==(const Update&, const Update&) = default;
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
