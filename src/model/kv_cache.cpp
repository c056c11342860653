// SPDX-License-Identifier: Apache-2.0
#include "trireme/model/kv_cache.hpp"

#include <algorithm>

namespace trireme::model {

std::int64_t cached_tokens(std::int64_t window, std::int64_t seq_len) {
  return window > 0 ? std::min(window, seq_len) : seq_len;
}

Bytes kv_cache_bytes(const Model& model, std::int64_t rows, std::int64_t seq_len, DType compute) {
  const std::int64_t of_token = 2 * model.held.kv_heads * model.held.head_dim * size_of(compute);
  std::int64_t tokens = 0;
  for (const ComputeBlock& block : model.compute_blocks)
    for (const Stage& stage : block.stages)
      if (has_kv_cache(stage.kind)) tokens += cached_tokens(stage.window, seq_len);
  return Bytes{rows * tokens * of_token};
}

}  // namespace trireme::model
