// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>

namespace trireme::model {

/// Tokens whose logits a GPU's head holds at a time where nothing is set: up to 1 GiB of them in bf16, and 1024 tokens
/// at least. Products want many rows, and every chunk reads the weight and its gradient. vocab: the ids held.
[[nodiscard]] constexpr std::int64_t gpu_logits_tokens(std::int64_t vocab) {
  return std::max<std::int64_t>(1024, (std::int64_t{1} << 30) / (vocab * 2) / 64 * 64);
}

}  // namespace trireme::model
