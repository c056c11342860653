// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>

#include "huggingface/json_object.hpp"
#include "trireme/config/run_config.hpp"
#include "trireme/model/architecture.hpp"

namespace trireme::huggingface {

/// Rotary position embedding as config.json describes it.
struct Rope {
  double theta = 10000.0;
  double local_theta = 0;           ///< of layers with a window if they have their own; 0: none
  std::optional<double> partial{};  ///< partial_rotary_factor in its tables
  std::optional<config::RopeScaling> scaling;
  std::vector<std::string> unread;  ///< keys of its tables, with their values, that nothing here follows
};

/// Reads RoPE from `config` in the dialect of transformers 4 (rope_theta, rope_scaling) or 5 (rope_parameters). Where
/// both are there they must agree, because each version follows its own.
[[nodiscard]] Rope read_rope(const JsonObject& config, const model::Architecture& a, Mistakes& mistakes);

}  // namespace trireme::huggingface
