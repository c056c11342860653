// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "trireme/config/run_config.hpp"

namespace trireme::cli {

/// A model that `init --from` supports by name: published sizes, to be trained from scratch.
struct NamedModel {
  std::string_view name;
  std::string_view about;
  config::Model model;       ///< vocab_size 0: the tokenizer's
  std::int64_t seq_len = 0;  ///< tokens of a sequence in its first training
};

[[nodiscard]] std::span<const NamedModel> named_models();

}  // namespace trireme::cli
