// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "trireme/model/model.hpp"

namespace trireme::planner {

/// Three layers of odd sizes.
inline model::Model llama() {
  config::Model config;
  config.vocab_size = 257;
  config.hidden_size = 72;
  config.intermediate_size = 100;
  config.layers = 3;
  config.heads = 6;
  config.kv_heads = 2;
  config.head_dim = 12;
  return model::build(config);
}

}  // namespace trireme::planner
