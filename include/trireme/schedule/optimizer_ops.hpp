// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "trireme/base/ids.hpp"

/// Verbs of a step's tail.
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

}  // namespace trireme::schedule
