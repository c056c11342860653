// SPDX-License-Identifier: Apache-2.0
#include "trireme/model/activations.hpp"

#include <algorithm>
#include <numeric>

#include "trireme/base/error.hpp"

namespace trireme::model {

std::vector<Bytes> saved_tensors(std::span<const TensorSpec> kept, const Counts& counts, DType compute, Keep keep) {
  std::vector<Bytes> out;
  for (const TensorSpec& tensor : kept)
    if (saves(tensor.policy, keep)) out.push_back(bytes_of(tensor.size, counts, compute));
  return out;
}

std::vector<Bytes> saved_tensors(StageKind kind, const Sizes& sizes, const Counts& counts, DType compute, Keep keep) {
  return saved_tensors(kept_tensors(kind, sizes), counts, compute, keep);
}

Bytes saved_bytes(StageKind kind, const Sizes& sizes, const Counts& counts, DType compute, Keep keep) {
  const std::vector<Bytes> tensors = saved_tensors(kind, sizes, counts, compute, keep);
  return std::accumulate(tensors.begin(), tensors.end(), Bytes{});
}

Pending pending_tensors(std::span<const TensorSpec> kept, const Counts& counts, DType compute, Keep keep) {
  Pending out;
  for (const TensorSpec& tensor : kept) {
    if (!tensor.waits) continue;
    const Bytes bytes = bytes_of(tensor.size, counts, compute);
    out.tensors.push_back(bytes);
    if (!saves(tensor.policy, keep)) out.fresh += bytes;
  }
  invariant(!out.tensors.empty(), "only transformer layers split their backward");
  return out;
}

Pending pending_tensors(StageKind kind, const Sizes& sizes, const Counts& counts, DType compute, Keep keep) {
  return pending_tensors(kept_tensors(kind, sizes), counts, compute, keep);
}

bool recomputes(const ComputeBlock& block) {
  return std::any_of(block.stages.begin(), block.stages.end(), [](const Stage& stage) {
    return stage.kind == StageKind::attention || stage.kind == StageKind::mlp || stage.kind == StageKind::moe ||
           stage.kind == StageKind::route || is_branch(stage.kind);
  });
}

}  // namespace trireme::model
