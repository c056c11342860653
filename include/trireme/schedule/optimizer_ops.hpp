// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "trireme/base/ids.hpp"

/// Verbs of a step's tail, and of the memory that it needs.
namespace trireme::schedule {

/// Computes the global gradient norm, the clip factor, and the step's loss; agrees whether the step is skipped.
struct ClipNorm {
  friend bool operator==(const ClipNorm&, const ClipNorm&) = default;
};
/// Applies the optimizer to this rank's shard of `block`, where that lives: on the host, with `on_host`. `beside`: on a
/// lane of its own, beside the next step's forward, which waits for each block's update when it first reads the block.
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
/// Frees it behind the block's update: at once, or before the next step's first op that reads the block where updates
/// run beside the forward.
struct FreeGradient {
  ParamBlock block;
  friend bool operator==(const FreeGradient&, const FreeGradient&) = default;
};

}  // namespace trireme::schedule
