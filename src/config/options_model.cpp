// SPDX-License-Identifier: Apache-2.0
// The sections [model], [optimizer], [lr] and [loss].
#include <array>
#include <limits>

#include "config/rope_scaling.hpp"
#include "config/section.hpp"
#include "trireme/config/rules.hpp"

namespace trireme::config {

namespace {

constexpr const char* layer_types_form = "a list of \"full_attention\" and \"sliding_attention\", repeated over layers";

Expected read_layer_types(const Value& value, Model& model) {
  std::vector<std::string> types;
  if (read(value, types) || types.empty()) return layer_types_form;
  for (const std::string& type : types)
    if (type != full_attention && type != sliding_attention) return layer_types_form;
  model.layer_types = std::move(types);
  return std::nullopt;
}

Printed print_layer_types(const Model& model) {
  return model.layer_types.empty() ? std::nullopt : print(model.layer_types);
}

}  // namespace

std::vector<Option> model_options() {
  Section<Model> s("model", &RunConfig::model);
  s.word("architecture", &Model::architecture,
         "model family, such as llama, qwen3, gemma3, olmo2 or gpt2; `trireme models` lists and describes them");
  s.size("vocab_size", &Model::vocab_size, largest_vocabulary,
         "vocabulary size; may be omitted with model.from, as all sizes")
      .required_unless("model.from");
  s.size("hidden_size", &Model::hidden_size, largest_width, "width of the residual stream")
      .required_unless("model.from");
  s.size("intermediate_size", &Model::intermediate_size, largest_width, "width of the feed-forward (MLP) layer")
      .required_unless("model.from");
  s.size("layers", &Model::layers, largest_count, "number of transformer blocks").required_unless("model.from");
  s.size("heads", &Model::heads, largest_count, "number of attention heads").required_unless("model.from");
  s.size("kv_heads", &Model::kv_heads, largest_count,
         "number of key and value heads (grouped-query attention); must divide heads")
      .default_is("heads");
  s.size("head_dim", &Model::head_dim, largest_count, "size of one head; must be even with RoPE")
      .default_is("hidden_size / heads");
  s.size("positions", &Model::positions, largest_length,
         "number of learned position embeddings, at least data.seq_len (gpt2 only)")
      .default_is("none: RoPE");
  s.number("norm_eps", &Model::norm_eps, above(0), "epsilon added to the variance (gpt2) or mean square in the norms");
  s.number("rope_theta", &Model::rope_theta, above(0), "base of the RoPE frequencies");
  s.custom(
       "rope_scaling", "table", read_rope_scaling, print_rope_scaling,
       std::string("RoPE for longer contexts, of type llama3, linear, yarn, longrope or dynamic: ") + rope_scaling_form)
      .default_is("none");
  s.flag("attention_bias", &Model::attention_bias,
         "biases of q, k, v and o, where the family has the choice (glm4, glm4_moe: of q, k and v; qwen2 always has "
         "those)");
  s.flag("mlp_bias", &Model::mlp_bias, "biases of the feed-forward layer (llama, granite, smollm3)");
  s.flag("qk_norm", &Model::qk_norm,
         "RMSNorm of every head of queries and keys, where the family has the choice (glm4_moe)");
  s.number("sliding_window", &Model::sliding_window, between(0, largest_length),
           "number of tokens that a query attends to, its own included, in families with windows (0: all before it)");
  s.custom(
       "layer_types", "strings", read_layer_types, print_layer_types,
       std::string("which layers have the window (ministral, qwen2, qwen3, gemma2, gemma3, olmo3, exaone4, cwm): ") +
           layer_types_form)
      .default_is("all with sliding_window");
  s.number("no_rope_interval", &Model::no_rope_interval, between(0, largest_count),
           "every Nth layer has no RoPE (smollm3: 4 as published; 0: all have it)");
  s.number("rope_local_theta", &Model::rope_local_theta, at_least(0),
           "base of the RoPE frequencies in layers with the window, which rope_scaling leaves alone (gemma3, olmo3)")
      .default_is("rope_theta");
  s.number("partial_rotary_factor", &Model::partial_rotary_factor, between(0, 1),
           "fraction of a head that RoPE rotates, from its beginning (phi3, glm4, glm4_moe)");
  s.size("query_pre_attn_scalar", &Model::query_pre_attn_scalar, largest_width,
         "attention scores are divided by its square root (gemma2, gemma3)")
      .default_is("head_dim");
  s.number("attention_multiplier", &Model::attention_multiplier, at_least(0),
           "factor of the attention scores (granite)")
      .default_is("1 / sqrt(head_dim)");
  s.number("attn_logit_softcapping", &Model::attn_logit_softcapping, at_least(0),
           "soft cap of the attention scores: s becomes cap tanh(s / cap) (gemma2: 50 as published; 0: none)");
  s.number("final_logit_softcapping", &Model::final_logit_softcapping, at_least(0),
           "soft cap of the logits (gemma2: 30 as published, gemma3; 0: none)");
  s.size("q_rank", &Model::q_rank, largest_width,
         "latent attention: width of the latent from which the queries are expanded (deepseek_v3, youtu: 1536 as "
         "published)")
      .default_is("none: queries are a product of the residual stream");
  s.size("kv_rank", &Model::kv_rank, largest_width,
         "latent attention: width of the latent from which keys and values are expanded (deepseek_v3, youtu: 512 as "
         "published)")
      .default_is("none");
  s.size("nope_dim", &Model::nope_dim, largest_width,
         "latent attention: elements of a head of queries and keys without RoPE (128 as published)")
      .default_is("none");
  s.size("rope_dim", &Model::rope_dim, largest_width,
         "latent attention: elements of a head with RoPE, whose keys all heads share; must be even (64 as published)")
      .default_is("none");
  s.size("value_dim", &Model::value_dim, largest_width,
         "latent attention: elements of a head of values (128 as published)")
      .default_is("none");
  s.custom(
       "rope_interleave", "true | false",
       [](const Value& value, Model& model) { return read(value, model.rope_interleave); },
       [](const Model& model) -> Printed { return model.rope_interleave ? std::nullopt : print(false); },
       "latent attention: RoPE turns neighbouring elements, else element i with i + rope_dim / 2")
      .default_is("true");
  s.number("embedding_multiplier", &Model::embedding_multiplier, above(0), "factor of the embedding (granite)");
  s.number("residual_multiplier", &Model::residual_multiplier, above(0),
           "factor of the output of every attention and feed-forward layer (granite)");
  s.number("logits_scaling", &Model::logits_scaling, above(0), "divisor of the logits (granite)");
  s.size(
       "experts", &Model::experts, largest_experts,
       "number of experts of a layer (mixtral: 8 as published, qwen3_moe and glm4_moe: 128, olmoe: 64, qwen2_moe: 60)")
      .default_is("none");
  s.size("experts_per_token", &Model::experts_per_token, largest_experts, "number of experts that compute each token")
      .default_is("none");
  s.size("expert_size", &Model::expert_size, largest_width,
         "width of one expert (qwen2_moe, qwen3_moe, glm4_moe, dots1)")
      .default_is("intermediate_size");
  s.number(
      "dense_layers", &Model::dense_layers, between(0, largest_count),
      "number of first layers with a feed-forward layer instead of experts (qwen2_moe, qwen3_moe, glm4_moe, dots1)");
  s.flag("router_normalize", &Model::router_normalize,
         "the weights of a token's experts are divided by their sum (glm4_moe, dots1, qwen2_moe, qwen3_moe, olmoe; "
         "mixtral always)");
  s.number("router_scale", &Model::router_scale, above(0),
           "factor of the weights of a token's experts (glm4_moe, dots1: routed_scaling_factor)");
  s.number("router_groups", &Model::router_groups, between(1, largest_experts),
           "number of groups of experts; a group is scored by its two best experts (glm4_moe, dots1: n_group)");
  s.number("router_groups_kept", &Model::router_groups_kept, between(1, largest_experts),
           "number of groups among whose experts a token chooses (glm4_moe, dots1: topk_group)");
  s.size("shared_size", &Model::shared_size, largest_width,
         "width of the shared experts together, which compute every token (glm4_moe, dots1: a multiple of expert_size; "
         "qwen2_moe)")
      .default_is("none");
  s.flag("tie_embeddings", &Model::tie_embeddings, "the output head shares the weights of the token embedding");
  s.choice(
      "init", &Model::init,
      "weight initialization; depth_scaled divides the std of the residual output projections by sqrt(2 * layers)");
  s.number("init_std", &Model::init_std, at_least(0), "standard deviation of the initial weights");
  s.path("from", &Model::from, "Hugging Face directory or checkpoint from which to load the weights at step 0")
      .default_is("none");
  return s.take();
}

std::vector<Option> loss_options() {
  Section<Loss> s("loss", &RunConfig::loss);
  s.number("z_loss", &Loss::z_loss, at_least(0), "weight of the z-loss, the mean of log(Z)^2 (PaLM)");
  s.number("balance_loss", &Loss::balance_loss, at_least(0),
           "weight of the sequence-wise balance loss of experts (DeepSeek-V3; 1e-4 there)");
  s.number("router_z_loss", &Loss::router_z_loss, at_least(0),
           "weight of the router z-loss, the mean of log(Z)^2 of its logits (ST-MoE; 1e-3 there)");
  s.number("balance_bias_rate", &Loss::balance_bias_rate, at_least(0),
           "step by which a router's correction bias of an expert grows after a training step that gave the expert "
           "fewer tokens than the mean, or shrinks (Wang et al. 2024; 1e-3 in DeepSeek-V3; glm4_moe, dots1)");
  s.number("chunk_tokens", &Loss::chunk_tokens, between(0, 1 << 30),
           "number of tokens whose logits are materialized at once (0: automatic)");
  return s.take();
}

namespace {

constexpr const char* groups_form = "a list of { names = [\"...\"], lr = ..., weight_decay = ... }";

/// { names = ["*.bias"], lr = 2, weight_decay = 0 }
Expected read_group(const Fields& fields, ParameterGroup& group) {
  bool has_setting = false;
  for (const auto& [key, value] : fields) {
    Expected expected = "only names, lr and weight_decay";
    if (key == "names") expected = read(value, group.names);
    if (key == "lr") expected = read(value, group.lr, at_least(0));
    if (key == "weight_decay") expected = read(value, group.weight_decay, at_least(0));
    has_setting = has_setting || key == "lr" || key == "weight_decay";
    if (expected) return key + " = " + describe(value) + " where it takes " + *expected;
  }
  if (group.names.empty()) return "names is missing";
  if (!has_setting) return "lr or weight_decay is missing";
  return std::nullopt;
}

Expected read_groups(const Value& value, Optimizer& optimizer) {
  const auto* list = std::get_if<List>(&value.data);
  if (list == nullptr) return groups_form;
  std::vector<ParameterGroup> groups;
  for (const Value& element : *list) {
    const auto* fields = std::get_if<Fields>(&element.data);
    if (fields == nullptr) return groups_form;
    if (Expected expected = read_group(*fields, groups.emplace_back()))
      return std::string(groups_form) + "; " + *expected;
  }
  optimizer.groups = std::move(groups);
  return std::nullopt;
}

Printed print_groups(const Optimizer& optimizer) {
  std::vector<std::string> texts;
  for (const ParameterGroup& group : optimizer.groups)
    texts.push_back("{ names = " + *print(group.names) + ", lr = " + *print(group.lr) +
                    (group.weight_decay ? ", weight_decay = " + *print(*group.weight_decay) : "") + " }");
  return "[" + join(texts, ", ") + "]";
}

}  // namespace

std::vector<Option> optimizer_options() {
  constexpr double smallest_normal = std::numeric_limits<float>::min();
  Section<Optimizer> s("optimizer", &RunConfig::optimizer);
  s.choice(
      "name", &Optimizer::name,
      "AdamW (Loshchilov and Hutter 2019); muon: Muon (Jordan 2024) for the matrices of layers, AdamW for all other "
      "parameters");
  s.number("lr", &Optimizer::lr, at_least(0), "peak learning rate");
  s.number("beta1", &Optimizer::beta1, from_to_below(0, 1), "decay rate of the first moment");
  s.number("beta2", &Optimizer::beta2, from_to_below(0, 1), "decay rate of the second moment");
  // A smaller one is a subnormal number or 0 in fp32, and the update of a parameter without gradient is 0 / 0.
  s.number("eps", &Optimizer::eps, at_least(smallest_normal), "epsilon added to the square root of the second moment");
  s.number("weight_decay", &Optimizer::weight_decay, at_least(0), "decoupled weight decay");
  s.custom(
      "no_decay", "strings", [](const Value& value, Optimizer& optimizer) { return read(value, optimizer.no_decay); },
      [](const Optimizer& optimizer) { return print(optimizer.no_decay); },
      "parameters without weight decay: glob patterns over Hugging Face names");
  s.number("clip_norm", &Optimizer::clip_norm, at_least(0), "clip gradients to this global L2 norm (0: off)");
  s.custom(
      "groups", "tables", read_groups, print_groups,
      "parameters with other settings: a list of { names = [globs], lr = factor of optimizer.lr, weight_decay = ... "
      "}, or [[optimizer.groups]]; a parameter is in the first group that it matches");
  s.number("momentum", &Optimizer::momentum, from_to_below(0, 1), "muon: decay rate of the momentum");
  s.flag("nesterov", &Optimizer::nesterov, "muon: Nesterov momentum");
  s.choice("scale", &Optimizer::scale,
           "muon: factor of the orthogonalized update: 0.2 sqrt(max(rows, columns)), which has the RMS of AdamW's "
           "update; sqrt(max(1, rows / columns)); or sqrt(rows / columns)");
  s.choice("newton_schulz", &Optimizer::newton_schulz,
           "muon: coefficients of the five Newton-Schulz iterations (Jordan 2024; Amsel et al. 2025)");
  s.choice("newton_schulz_precision", &Optimizer::newton_schulz_precision,
           "muon: data type of the iterations and of the matrices that ranks exchange; auto: precision.compute");
  s.custom(
      "adamw", "strings", [](const Value& value, Optimizer& optimizer) { return read(value, optimizer.adamw); },
      [](const Optimizer& optimizer) { return print(optimizer.adamw); },
      "muon: matrices that AdamW updates: glob patterns over Hugging Face names");
  s.number("window_bytes", &Optimizer::window_bytes, between(1, 0x1p40),
           "muon: matrices that are exchanged at once, per rank, rounded up to whole blocks");
  return s.take();
}

std::vector<Option> lr_options() {
  Section<Lr> s("lr", &RunConfig::lr);
  constexpr double largest_step = 0x1p40, largest_tokens = 0x1p53;
  s.choice("schedule", &Lr::schedule, "learning rate schedule after warmup");
  s.number("warmup_steps", &Lr::warmup_steps, between(0, largest_step), "number of linear warmup steps");
  s.number("end_step", &Lr::end_step, between(1, largest_step), "step at which the minimum learning rate is reached")
      .default_is("train.steps");
  s.number("wsd_decay_steps", &Lr::wsd_decay_steps, between(0, largest_step),
           "number of decay steps at the end of the wsd schedule");
  s.number("warmup_tokens", &Lr::warmup_tokens, between(0, largest_tokens),
           "length of the warmup in input tokens, rounded up to whole steps: instead of warmup_steps")
      .default_is("that of warmup_steps");
  s.number("end_tokens", &Lr::end_tokens, between(1, largest_tokens),
           "end of the schedule in input tokens, rounded up to whole steps: instead of end_step")
      .default_is("that of end_step");
  s.number("wsd_decay_tokens", &Lr::wsd_decay_tokens, between(0, largest_tokens),
           "length of the wsd decay in input tokens, rounded up to whole steps: instead of wsd_decay_steps")
      .default_is("that of wsd_decay_steps");
  s.number("min_ratio", &Lr::min_ratio, between(0, 1), "minimum learning rate, as a fraction of optimizer.lr");
  return s.take();
}

}  // namespace trireme::config
