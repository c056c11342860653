// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "trireme/planner/replay.hpp"

namespace trireme::planner {

/// The largest of what stages on a GPU need beside what is kept, and of which: the head's logits, or the rows of
/// experts. That of other stages is small beside it and is not counted.
struct Workspace {
  Bytes bytes;
  std::string of, during;
};
[[nodiscard]] Workspace largest_workspace(const model::Model& model, const ReplayOptions& replay_options);

/// What libraries keep on a GPU for matrix products: in bf16 cuBLASLt's, in fp32, in fp8 and for attention by plain
/// products libtorch's. All products are on one stream.
[[nodiscard]] Bytes product_workspace(const model::Model& model, const ReplayOptions& replay_options);

}  // namespace trireme::planner
