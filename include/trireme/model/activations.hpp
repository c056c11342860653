// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "trireme/base/units.hpp"
#include "trireme/model/keep.hpp"
#include "trireme/model/stage_tensors.hpp"

/// Bytes of the tensors that stages keep for their backward: sums over the table of `kept_tensors`.
namespace trireme::model {

/// Bytes of each tensor that a stage keeps after its forward, in the order of its table. Keep::input: of a stage that
/// will be recomputed.
[[nodiscard]] std::vector<Bytes> saved_tensors(std::span<const TensorSpec> kept, const Counts& counts, DType compute,
                                               Keep keep);
[[nodiscard]] std::vector<Bytes> saved_tensors(StageKind kind, const Sizes& sizes, const Counts& counts, DType compute,
                                               Keep keep = Keep::products);
[[nodiscard]] Bytes saved_bytes(StageKind kind, const Sizes& sizes, const Counts& counts, DType compute,
                                Keep keep = Keep::products);

/// Tensors kept between the two parts of a stage's backward.
struct Pending {
  std::vector<Bytes> tensors;
  Bytes fresh;  ///< bytes that its forward has not saved
};
/// keep: of the forward. Throws BugError for a stage whose backward is not split.
[[nodiscard]] Pending pending_tensors(std::span<const TensorSpec> kept, const Counts& counts, DType compute, Keep keep);
[[nodiscard]] Pending pending_tensors(StageKind kind, const Sizes& sizes, const Counts& counts, DType compute,
                                      Keep keep);

/// Whether a block is worth computing again: it keeps more than it read.
[[nodiscard]] bool recomputes(const ComputeBlock& block);

}  // namespace trireme::model
