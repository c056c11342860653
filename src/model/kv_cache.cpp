// SPDX-License-Identifier: Apache-2.0
#include "trireme/model/kv_cache.hpp"

#include <algorithm>

#include "trireme/model/activations.hpp"

namespace trireme::model {

bool has_kv_cache(StageKind kind, const Sizes& sizes) {
  const std::vector<TensorSpec> kept = kept_tensors(kind, sizes);
  return std::ranges::any_of(kept, [](const TensorSpec& tensor) { return saves(tensor.policy, Keep::kv_cache); });
}

std::int64_t cached_tokens(std::int64_t window, std::int64_t seq_len) {
  return window > 0 ? std::min(window, seq_len) : seq_len;
}

Bytes kv_cache_bytes(const Model& model, std::int64_t rows, std::int64_t seq_len, DType compute) {
  Bytes bytes;
  for (const ComputeBlock& block : model.compute_blocks)
    for (const Stage& stage : block.stages)
      bytes +=
          saved_bytes(stage.kind, model.held, rows * cached_tokens(stage.window, seq_len), compute, Keep::kv_cache);
  return bytes;
}

}  // namespace trireme::model
