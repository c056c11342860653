// SPDX-License-Identifier: Apache-2.0
// Granite 3 (IBM 2024): Llama with factors of the embedding, of the outputs of branches, of attention's scores and a
// divisor of the logits (maximal update parametrization, Yang et al. 2022).
#include "model/families.hpp"

namespace trireme::model {

using M = config::Model;

Architecture granite() {
  Architecture a = llama();
  a.name = a.model_type = "granite";
  a.models = "Granite 3 (dense)";
  a.class_name = "GraniteForCausalLM";
  a.keys = with(a.keys, {{"embedding_multiplier", &M::embedding_multiplier, 1},
                         {"residual_multiplier", &M::residual_multiplier, 1},
                         {"attention_multiplier", &M::attention_multiplier, 1},
                         {"logits_scaling", &M::logits_scaling, 1}});
  return a;
}

}  // namespace trireme::model
