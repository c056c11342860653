// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>

namespace trireme::model {

/// Default number of tokens whose logits exist at once in a GPU's head: up to 1 GiB of them in bf16, and at least 1024
/// tokens. Products are faster with many rows, and every chunk reads the weight and its gradient. vocab: the ids held.
[[nodiscard]] constexpr std::int64_t gpu_logits_tokens(std::int64_t vocab) {
  return std::max<std::int64_t>(1024, (std::int64_t{1} << 30) / (vocab * 2) / 64 * 64);
}

}  // namespace trireme::model
