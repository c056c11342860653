// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

namespace trireme::huggingface {

/// Whether `key` of a config.json changes nothing that a causal model computes: what transformers (4.45 to 5.23,
/// PretrainedConfig and the configurations of the families here) writes about files, defaults of generation, other
/// heads and how it runs.
[[nodiscard]] bool changes_no_values(std::string_view key);

}  // namespace trireme::huggingface
