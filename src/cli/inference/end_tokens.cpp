// SPDX-License-Identifier: Apache-2.0
#include "cli/inference/end_tokens.hpp"

#include <utility>
#include <vector>

namespace trireme::cli {

std::set<std::int32_t> end_tokens(const tokenizer::Tokenizer& tokenizer, std::span<const std::int64_t> eos_token_ids,
                                  std::span<const std::string> stops) {
  std::set<std::int32_t> ends;
  for (const std::int64_t id : eos_token_ids)
    if (std::in_range<std::int32_t>(id)) ends.insert(static_cast<std::int32_t>(id));
  for (const std::string& stop : stops) {
    const std::vector<std::int32_t> ids = tokenizer.encode(stop);
    if (ids.size() == 1 && tokenizer.decode(ids).empty()) ends.insert(ids.front());
  }
  return ends;
}

}  // namespace trireme::cli
