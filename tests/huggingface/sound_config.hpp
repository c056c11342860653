// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json.hpp>

#include "huggingface/config_text.hpp"
#include "trireme/model/architecture.hpp"
#include "trireme/model/model.hpp"

namespace trireme::huggingface {

using nlohmann::json;

/// A sound config.json of a family with everything on that it can express.
inline json sound(const model::Architecture& a) {
  config::Model model{.vocab_size = 11, .hidden_size = 8, .intermediate_size = 12, .layers = 4, .heads = 4};
  model.architecture = a.name;
  model.kv_heads = a.expresses(&config::Model::kv_heads) ? 2 : 4;
  if (a.decoder.latent) {
    model.kv_heads = 4;
    model.q_rank = 5, model.kv_rank = 6, model.nope_dim = 3, model.rope_dim = 2, model.value_dim = 4;
  }
  if (a.expresses(&config::Model::positions)) model.positions = 16;
  if (a.expresses(&config::Model::attention_bias)) model.attention_bias = true;
  if (a.skips_rope) model.no_rope_interval = 2;
  if (a.decoder.experts) model.experts = 3, model.experts_per_token = 2;
  if (a.has_dense_layers()) model.dense_layers = 1;
  if (a.expresses(&config::Model::shared_size)) model.shared_size = model.intermediate_size;
  if (a.windows != model::Windows::none) model.sliding_window = 7;
  if (a.windows == model::Windows::layers || a.windows == model::Windows::switched)
    model.layer_types = {config::full_attention, config::sliding_attention};
  using M = config::Model;
  for (const auto member : {&M::attention_multiplier, &M::attn_logit_softcapping, &M::final_logit_softcapping,
                            &M::embedding_multiplier, &M::residual_multiplier, &M::logits_scaling})
    if (a.expresses(member)) model.*member = 3.5;
  if (a.expresses(&M::query_pre_attn_scalar)) model.query_pre_attn_scalar = 10;
  if (a.decoder.local_rope) model.rope_local_theta = 77;
  if (a.original_length_absent > 0)
    model.rope_scaling = config::RopeScaling{.type = config::RopeType::longrope,
                                             .factor = 3,
                                             .original_max_position_embeddings = 16,
                                             .short_factor = {1},
                                             .long_factor = {2}};
  else if (!a.decoder.learned_positions)
    model.rope_scaling = config::RopeScaling{.type = config::RopeType::yarn,
                                             .factor = 3,
                                             .original_max_position_embeddings = 16,
                                             .llama_4_scaling_beta = a.scales_queries ? 0.2 : 0.0,
                                             .mscale_all_dim = a.decoder.latent ? 0.5 : 0.0};
  return json::parse(hf_config_text(model::build(model), {}));
}

inline constexpr std::size_t dialects = 3;

/// The same with the first name of rope_type, or as transformers 5 alone writes it: all of RoPE in rope_parameters.
inline json in_dialect(json config, std::size_t dialect) {
  if (!config.contains("rope_theta")) return config;
  if (dialect == 1 && config.contains("rope_scaling") && config["rope_scaling"].contains("rope_type")) {
    config["rope_scaling"]["type"] = config["rope_scaling"]["rope_type"];
    config["rope_scaling"].erase("rope_type");
  } else if (dialect == 2) {
    if (!config.contains("rope_parameters")) {  // else by type of layer already
      const bool scaled = config.contains("rope_scaling") && config["rope_scaling"].is_object();
      config["rope_parameters"] = scaled ? config["rope_scaling"] : json{{"rope_type", "default"}};
      config["rope_parameters"]["rope_theta"] = config["rope_theta"];
    }
    for (const char* key : {"rope_scaling", "rope_theta", "rope_local_base_freq"}) config.erase(key);
  }
  return config;
}

}  // namespace trireme::huggingface
