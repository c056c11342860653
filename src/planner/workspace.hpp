// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "trireme/planner/replay.hpp"

namespace trireme::planner {

/// The largest workspace of stages on a GPU, in addition to saved tensors, and its owner: the head's logits, or the
/// rows of experts. That of other stages is small in comparison and is not counted.
struct Workspace {
  Bytes bytes;
  std::string of, during;
};
[[nodiscard]] Workspace largest_workspace(const model::Model& model, const ReplayOptions& replay_options);

/// Workspace of libraries for matrix products on a GPU: cuBLASLt's in bf16; libtorch's in fp32, in fp8 and for
/// attention by plain products. All products are on one stream.
[[nodiscard]] Bytes product_workspace(const model::Model& model, const ReplayOptions& replay_options);

}  // namespace trireme::planner
