// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

namespace trireme::huggingface {

/// Whether `key` of a config.json does not affect the results of a causal model: keys that transformers (4.45 to 5.23,
/// PretrainedConfig and the configurations of the families here) writes about files, defaults of generation, other
/// heads and execution.
[[nodiscard]] bool changes_no_values(std::string_view key);

}  // namespace trireme::huggingface
