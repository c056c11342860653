// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "trireme/model/architecture.hpp"

namespace trireme::model {

/// A small model of a family.
inline config::Model small(const Architecture& a) {
  config::Model config{.architecture = std::string(a.name),
                       .vocab_size = 97,
                       .hidden_size = 24,
                       .intermediate_size = 40,
                       .layers = 2,
                       .heads = 4};
  if (a.decoder.learned_positions) config.positions = 8;
  if (a.decoder.experts) config.experts = 4, config.experts_per_token = 2;
  if (a.scales_queries)
    config.rope_scaling = config::RopeScaling{
        .type = config::RopeType::yarn, .original_max_position_embeddings = 8, .llama_4_scaling_beta = 0.1};
  if (a.decoder.latent)
    config.q_rank = 12, config.kv_rank = 10, config.nope_dim = 6, config.rope_dim = 4, config.value_dim = 5;
  if (a.expresses(&config::Model::shared_size)) config.shared_size = config.intermediate_size;
  return config;
}

}  // namespace trireme::model
