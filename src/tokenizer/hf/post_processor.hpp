// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "tokenizer/text/node.hpp"

namespace trireme::tokenizer::hf {

/// The ids that a post-processor puts around a text.
struct Frame {
  std::vector<std::int32_t> before;
  std::vector<std::int32_t> after;
};

/// `node` may be null. Throws DataError with the key of an unsupported component.
[[nodiscard]] Frame read_post_processor(const Node& node);

}  // namespace trireme::tokenizer::hf
