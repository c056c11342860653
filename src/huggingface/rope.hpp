// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>

#include "huggingface/json_object.hpp"
#include "trireme/config/run_config.hpp"

namespace trireme::huggingface {

/// Rotary position embedding as config.json describes it.
struct Rope {
  double theta = 10000.0;
  std::optional<config::RopeScaling> scaling;
  std::vector<std::string> unread;  ///< keys of its tables, with their values, that nothing here follows
};

/// Reads RoPE from `config` in the dialect of transformers 4 (rope_theta, rope_scaling) or 5 (rope_parameters). Where
/// both are there they must agree, because each version follows its own.
/// theta: its value where it is absent.
[[nodiscard]] Rope read_rope(const JsonObject& config, double theta, Mistakes& mistakes);

}  // namespace trireme::huggingface
