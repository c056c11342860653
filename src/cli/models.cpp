// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <string>

#include "cli/commands.hpp"
#include "cli/start/front_page.hpp"
#include "trireme/base/text.hpp"
#include "trireme/model/architecture.hpp"
#include "trireme/model/multimodal.hpp"

namespace trireme::cli {
namespace {

/// Options of the run file, and fixed properties of the family.
std::string options_of(const model::Architecture& a) {
  std::vector<std::string> list;
  const model::Decoder& d = a.decoder;
  if (d.learned_positions) list.emplace_back("learned positions");
  if (d.norm == model::NormKind::layer) list.emplace_back("LayerNorm");
  if (d.norm == model::NormKind::rms_plus_one) list.emplace_back("norms times (1 + w)");
  if (d.activation == model::Activation::geglu_tanh) list.emplace_back("GeGLU");
  if (d.embedding_root) list.emplace_back("embedding times sqrt(hidden_size)");
  if (d.adjacent_pairs) list.emplace_back("RoPE of neighbouring elements");
  if (d.qk_norm == model::QkNorm::head) list.emplace_back("norm of queries and keys");
  if (d.qk_norm == model::QkNorm::width) list.emplace_back("norm of queries and keys over all heads");
  if (d.post_norm) list.emplace_back(d.pre_norm ? "norms before and behind branches" : "norms behind branches");
  if (d.qkv_bias) list.emplace_back(d.o_bias ? "biases" : "biases of q, k and v");
  if (a.expresses(&config::Model::attention_bias)) list.emplace_back("attention_bias");
  if (a.expresses(&config::Model::mlp_bias)) list.emplace_back("mlp_bias");
  if (a.windows != model::Windows::none) list.emplace_back("sliding_window");
  if (a.windows == model::Windows::layers || a.windows == model::Windows::switched) list.emplace_back("layer_types");
  if (a.skips_rope) list.emplace_back("no_rope_interval");
  if (d.latent) list.emplace_back("latent attention");
  using M = config::Model;
  const auto add = [&](const char* key, auto member) {
    if (a.expresses(member)) list.emplace_back(key);
  };
  add("query_pre_attn_scalar", &M::query_pre_attn_scalar);
  add("attn_logit_softcapping", &M::attn_logit_softcapping);
  add("final_logit_softcapping", &M::final_logit_softcapping);
  add("embedding_multiplier", &M::embedding_multiplier);
  add("residual_multiplier", &M::residual_multiplier);
  add("attention_multiplier", &M::attention_multiplier);
  add("logits_scaling", &M::logits_scaling);
  add("experts", &M::experts);
  add("expert_size", &M::expert_size);
  if (a.has_dense_layers()) list.emplace_back("dense_layers");
  add("router_normalize", &M::router_normalize);
  add("router_scale", &M::router_scale);
  add("router_groups", &M::router_groups);
  add("router_groups_kept", &M::router_groups_kept);
  add("shared_size", &M::shared_size);
  add("qk_norm", &M::qk_norm);
  add("q_rank", &M::q_rank);
  add("kv_rank", &M::kv_rank);
  add("nope_dim", &M::nope_dim);
  add("rope_dim", &M::rope_dim);
  add("value_dim", &M::value_dim);
  add("rope_interleave", &M::rope_interleave);
  add("partial_rotary_factor", &M::partial_rotary_factor);
  if (d.local_rope) list.emplace_back("rope_local_theta");
  if (!d.learned_positions)
    list.emplace_back(a.original_length_absent > 0 ? "rope_scaling (longrope)"
                      : a.scales_queries           ? "rope_scaling (yarn)"
                                                   : "rope_scaling");
  return join(list, ", ");
}

int models() {
  for (const model::Architecture& a : model::architectures())
    fmt::print("{:<10} {:<22} {}\n{:>33} {}\n", a.name, a.class_name, a.models, "", options_of(a));
  fmt::print("\nRead as their text part, without the tensors of pictures:\n");
  for (const model::Multimodal& m : model::multimodals())
    fmt::print(
        "{:<10} {:<33} {}\n", m.model_type, m.class_name,
        m.any_text ? "text_config of any family" : fmt::format("as {}", model::text_type(m.text_type)->family_type));
  fmt::print(
      "\nThe columns are model.architecture, the class in transformers, and whose models; below, what the family has "
      "and\n"
      "what [model] may set. rope_scaling is of type llama3, linear, yarn, longrope or dynamic. A config.json of "
      "anything else is\n"
      "refused by its keys: other model_types and multimodal models, other mixtures of experts, quantized weights,\n"
      "and options that its class has not. See docs/models.md.\n");
  return 0;
}

}  // namespace

void add_models(CLI::App& app, Action& chosen) {
  CLI::App* command = add_command(app, "models");
  command->footer("Example:\n  trireme models");
  command->callback([&chosen] { chosen = models; });
}

}  // namespace trireme::cli
