// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "trireme/model/model.hpp"

namespace trireme::schedule::testing {

/// A Llama of `layers` layers with sizes that divide by little.
inline model::Model llama(std::int64_t layers, bool tied = false, const model::TensorPart& part = {}) {
  config::Model config;
  config.vocab_size = 257;
  config.hidden_size = 72;
  config.intermediate_size = 100;
  config.layers = layers;
  config.heads = 6;
  config.kv_heads = 2;
  config.head_dim = 12;
  config.tie_embeddings = tied;
  return model::build(config, part);
}

}  // namespace trireme::schedule::testing
