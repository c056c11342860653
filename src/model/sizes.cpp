// SPDX-License-Identifier: Apache-2.0
#include "model/sizes.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string_view>
#include <utility>

#include "trireme/base/error.hpp"
#include "trireme/config/rules.hpp"
#include "trireme/model/architecture.hpp"

namespace trireme::model {
namespace {

constexpr std::int64_t largest_size = std::numeric_limits<std::int32_t>::max();
constexpr std::int64_t most_layers = 65536;
constexpr double largest_model = 0x1p53;  // elements; their bytes still fit 64 bits with room for optimizer state

void check_given(const config::Model& c, Mistakes& mistakes) {
  const auto positive = [&](std::string_view key, std::int64_t value, std::int64_t largest = largest_size) {
    if (value == 0) mistakes.add(fmt::format("model.{} is not given; it must be at least 1", key));
    if (value < 0) mistakes.add(fmt::format("model.{} = {}; it must be at least 1", key, value));
    if (value > largest) mistakes.add(fmt::format("model.{} = {}; it must be at most {}", key, value, largest));
  };
  positive("vocab_size", c.vocab_size);
  positive("hidden_size", c.hidden_size);
  positive("intermediate_size", c.intermediate_size);
  positive("layers", c.layers, most_layers);
  positive("heads", c.heads);
  if (c.kv_heads != 0) positive("kv_heads", c.kv_heads);
  if (c.head_dim != 0) positive("head_dim", c.head_dim);
}

/// The rotated part of a head is an even number of elements; longrope has a factor for each pair.
void check_rotary_width(const config::Model& c, const Decoder& decoder, std::int64_t head_dim, Mistakes& mistakes) {
  const std::int64_t width = rotary_width(decoder, head_dim);
  if (width < 2 || width > head_dim || width % 2 != 0)
    return mistakes.add(
        fmt::format("model.partial_rotary_factor = {}: RoPE would turn {} of head_dim = {} elements; it "
                    "requires an even number from 2 to head_dim",
                    c.partial_rotary_factor, width, head_dim));
  if (!c.rope_scaling) return;
  if (c.rope_scaling->type == config::RopeType::dynamic && width < 4)
    return mistakes.add(
        "model.rope_scaling: rope_type = \"dynamic\" requires heads of which RoPE turns at least 4 elements");
  if (c.rope_scaling->type != config::RopeType::longrope) return;
  for (const auto& [key, factors] : {std::pair{"short_factor", &c.rope_scaling->short_factor},
                                     std::pair{"long_factor", &c.rope_scaling->long_factor}})
    if (static_cast<std::int64_t>(factors->size()) != width / 2)
      mistakes.add(fmt::format("model.rope_scaling.{} has {} numbers; RoPE turns {} pairs of elements in a head", key,
                               factors->size(), width / 2));
}

/// Elements of a head of queries and keys.
std::int64_t head_dim_of(const config::Model& c, const Decoder& decoder) {
  if (decoder.latent) return decoder.latent->head_dim();
  return c.head_dim == 0 ? c.hidden_size / c.heads : c.head_dim;
}

/// Sizes of latent attention: all are given but q_rank, and head_dim and kv_heads follow from them.
void check_latent(const config::Model& c, const Latent& latent, Mistakes& mistakes) {
  for (const auto& [key, value] : {std::pair{"kv_rank", c.kv_rank},
                                   {"nope_dim", c.nope_dim},
                                   {"rope_dim", c.rope_dim},
                                   {"value_dim", c.value_dim}})
    if (value < 1)
      mistakes.add(
          fmt::format("model.{} = {}; model.architecture = \"{}\" has latent attention, where it is at least 1", key,
                      value, c.architecture));
  if (c.q_rank < 0) mistakes.add(fmt::format("model.q_rank = {}; it must be at least 0 (none)", c.q_rank));
  if (!mistakes.empty()) return;
  if (c.rope_dim % 2 != 0)
    mistakes.add(fmt::format("model.rope_dim = {} is odd; RoPE turns pairs: use {} or {}", c.rope_dim,
                             std::max<std::int64_t>(2, c.rope_dim - 1), c.rope_dim + 1));
  if (c.head_dim != 0 && c.head_dim != latent.head_dim())
    mistakes.add(
        fmt::format("model.head_dim = {}: with latent attention it is model.nope_dim + model.rope_dim = {}; remove it",
                    c.head_dim, latent.head_dim()));
  if (c.kv_heads != 0 && c.kv_heads != c.heads)
    mistakes.add(
        fmt::format("model.kv_heads = {}: with latent attention every head has keys and values; remove it, or set {}",
                    c.kv_heads, c.heads));
  if (mistakes.empty()) check_rotary_width(c, Decoder{.latent = latent}, latent.head_dim(), mistakes);
}

void check_heads(const config::Model& c, const Decoder& decoder, Mistakes& mistakes) {
  if (decoder.latent) return check_latent(c, *decoder.latent, mistakes);
  if (const auto misfit = config::misfit_of_heads(c)) {
    mistakes.add("model.heads: " + *misfit);
  } else if (const std::int64_t head_dim = c.head_dim == 0 ? c.hidden_size / c.heads : c.head_dim;
             !decoder.learned_positions && decoder.rotary_part == 1 && head_dim % 2 != 0) {
    mistakes.add(fmt::format("model.head_dim = {} is odd; RoPE requires an even head_dim: use {} or {}", head_dim,
                             std::max<std::int64_t>(2, head_dim - 1), head_dim + 1));
  } else if (!decoder.learned_positions) {
    check_rotary_width(c, decoder, head_dim, mistakes);
  }
  if (const auto misfit = config::misfit_of_kv_heads(c)) mistakes.add("model.kv_heads: " + *misfit);
}

void check_numbers(const config::Model& c, const Decoder& decoder, Mistakes& mistakes) {
  const auto above_zero = [&](std::string_view key, double value) {
    if (!(value > 0) || !std::isfinite(value))
      mistakes.add(fmt::format("model.{} = {}; it must be above 0", key, value));
  };
  above_zero("norm_eps", c.norm_eps);
  if (!decoder.learned_positions) above_zero("rope_theta", c.rope_theta);
  above_zero("embedding_multiplier", c.embedding_multiplier);
  above_zero("residual_multiplier", c.residual_multiplier);
  above_zero("logits_scaling", c.logits_scaling);
  if (!(c.init_std >= 0) || !std::isfinite(c.init_std)) {
    mistakes.add(fmt::format("model.init_std = {}; it must be at least 0", c.init_std));
  }
  if (!c.rope_scaling) return;
  const config::RopeScaling& scaling = *c.rope_scaling;
  above_zero("rope_scaling.factor", scaling.factor);
  if (scaling.type == config::RopeType::longrope && scaling.original_max_position_embeddings < 2)
    mistakes.add("model.rope_scaling.original_max_position_embeddings must be at least 2");
  if (scaling.type == config::RopeType::dynamic && scaling.original_max_position_embeddings < 1)
    mistakes.add("model.rope_scaling.original_max_position_embeddings must be at least 1");
  if (scaling.type != config::RopeType::llama3) return;
  above_zero("rope_scaling.low_freq_factor", scaling.low_freq_factor);
  if (!(scaling.high_freq_factor > scaling.low_freq_factor) || !std::isfinite(scaling.high_freq_factor)) {
    mistakes.add(fmt::format("model.rope_scaling.high_freq_factor = {}; it must be above low_freq_factor = {}",
                             scaling.high_freq_factor, scaling.low_freq_factor));
  }
  if (scaling.original_max_position_embeddings < 1) {
    mistakes.add(fmt::format("model.rope_scaling.original_max_position_embeddings = {}; it must be at least 1",
                             scaling.original_max_position_embeddings));
  }
}

void check_total(const Sizes& s, Mistakes& mistakes) {
  const auto hidden = static_cast<double>(s.hidden);
  const double head_rows =
      2.0 * static_cast<double>(s.heads + s.kv_heads) * static_cast<double>(std::max(s.head_dim, s.value_dim()));
  double layer = hidden * (head_rows + 3.0 * static_cast<double>(s.intermediate) + 2.0);
  if (const auto& l = s.decoder.latent)
    layer += (hidden + static_cast<double>(s.heads) * static_cast<double>(l->head_dim() + l->value)) *
             static_cast<double>(l->compressed());
  if (s.decoder.experts)
    layer += hidden * (static_cast<double>(s.decoder.experts->count) *
                           (3.0 * static_cast<double>(s.decoder.experts->size) + 1.0) +
                       3.0 * static_cast<double>(s.decoder.experts->shared_size) + 1.0);
  const double rows = 2.0 * static_cast<double>(s.vocab) + static_cast<double>(s.positions);
  const double total = static_cast<double>(s.layers) * layer + rows * hidden + hidden;
  if (total > largest_model) {
    mistakes.add(fmt::format("the model has {:.3g} parameters; at most {:.3g} can be counted, use smaller sizes", total,
                             largest_model));
  }
}

/// Options that the class of this architecture in transformers cannot express, so that no export could hold them.
void check_expressible(const config::Model& c, Mistakes& mistakes) {
  const Architecture& a = architecture(c.architecture);
  const auto refuse = [&](std::string_view key) {
    mistakes.add(
        fmt::format("model.{} has no meaning for model.architecture = \"{}\": {} of transformers has no such key; "
                    "remove it, or choose another architecture (`trireme models`)",
                    key, c.architecture, a.class_name));
  };
  if (a.heads_span_hidden && c.head_dim != 0 && c.head_dim * c.heads != c.hidden_size)
    mistakes.add(
        fmt::format("model.head_dim = {}: the heads of model.architecture = \"{}\" together are as wide as "
                    "model.hidden_size = {}; remove it",
                    c.head_dim, c.architecture, c.hidden_size));
  if (c.attention_bias && !a.expresses(&config::Model::attention_bias)) refuse("attention_bias");
  if (c.mlp_bias && !a.expresses(&config::Model::mlp_bias)) refuse("mlp_bias");
  if (a.original_length_absent > 0 && c.rope_scaling && c.rope_scaling->type != config::RopeType::longrope)
    mistakes.add(
        fmt::format("model.rope_scaling: {} of transformers takes rope_type = \"longrope\" only", a.class_name));
  const bool yarn = c.rope_scaling && c.rope_scaling->type == config::RopeType::yarn;
  if (a.scales_queries && !yarn)
    mistakes.add(fmt::format(
        "model.rope_scaling: {} of transformers requires rope_type = \"yarn\"; factor = 1 stretches nothing",
        a.class_name));
  if (!a.scales_queries && c.rope_scaling && c.rope_scaling->llama_4_scaling_beta > 0)
    refuse("rope_scaling.llama_4_scaling_beta");
  if (c.no_rope_interval > 0 && !a.skips_rope) refuse("no_rope_interval");
  if (c.rope_local_theta > 0 && !a.decoder.local_rope) refuse("rope_local_theta");
  const config::Model defaults;
  const auto expressed = [&](std::string_view key, auto member) {
    if (c.*member != defaults.*member && !a.expresses(member)) refuse(key);
  };
  expressed("partial_rotary_factor", &config::Model::partial_rotary_factor);
  expressed("query_pre_attn_scalar", &config::Model::query_pre_attn_scalar);
  expressed("attention_multiplier", &config::Model::attention_multiplier);
  expressed("attn_logit_softcapping", &config::Model::attn_logit_softcapping);
  expressed("final_logit_softcapping", &config::Model::final_logit_softcapping);
  expressed("embedding_multiplier", &config::Model::embedding_multiplier);
  expressed("residual_multiplier", &config::Model::residual_multiplier);
  expressed("logits_scaling", &config::Model::logits_scaling);
  expressed("experts", &config::Model::experts);
  expressed("experts_per_token", &config::Model::experts_per_token);
  expressed("expert_size", &config::Model::expert_size);
  expressed("router_normalize", &config::Model::router_normalize);
  expressed("router_scale", &config::Model::router_scale);
  expressed("router_groups", &config::Model::router_groups);
  expressed("router_groups_kept", &config::Model::router_groups_kept);
  expressed("shared_size", &config::Model::shared_size);
  expressed("qk_norm", &config::Model::qk_norm);
  expressed("q_rank", &config::Model::q_rank);
  expressed("kv_rank", &config::Model::kv_rank);
  expressed("nope_dim", &config::Model::nope_dim);
  expressed("rope_dim", &config::Model::rope_dim);
  expressed("value_dim", &config::Model::value_dim);
  expressed("rope_interleave", &config::Model::rope_interleave);
  if (c.rope_scaling && c.rope_scaling->mscale_all_dim != 0 && !a.decoder.latent) refuse("rope_scaling.mscale_all_dim");
  if (c.dense_layers != 0 && !a.has_dense_layers()) refuse("dense_layers");
  if (c.sliding_window > 0 && a.windows == Windows::none) refuse("sliding_window");
  if (!c.layer_types.empty() && (a.windows == Windows::none || a.windows == Windows::all)) refuse("layer_types");
  const auto windowed =
      std::find(c.layer_types.begin(), c.layer_types.end(), config::sliding_attention) - c.layer_types.begin();
  const bool any = windowed < std::ssize(c.layer_types);
  if (any && c.sliding_window == 0)
    mistakes.add("model.layer_types has sliding_attention, but model.sliding_window is not given; set it");
  else if (!c.layer_types.empty() && !any && c.sliding_window > 0)
    mistakes.add(
        fmt::format("model.sliding_window = {} has no effect: model.layer_types has no sliding_attention; remove it",
                    c.sliding_window));
  else if (a.turns_windows_only && any && windowed >= c.layers)
    mistakes.add(
        fmt::format("model.layers = {}: none has the window of model.layer_types, and only layers with a window have "
                    "RoPE; set model.layers to at least {}, or remove model.sliding_window and model.layer_types",
                    c.layers, windowed + 1));
}

/// Keys of the other kind of positions, and of options of some forms only, have no effect here: they are refused.
void check_form(const config::Model& c, const Decoder& decoder, Mistakes& mistakes) {
  const auto unused = [&](std::string_view key, std::string_view why) {
    mistakes.add(fmt::format("model.{} has no meaning for model.architecture = \"{}\": {}; remove it", key,
                             c.architecture, why));
  };
  const config::Model defaults;
  if (!decoder.learned_positions) {
    if (c.positions != 0) unused("positions", "its positions are rotary");
    return;
  }
  if (c.positions == 0) mistakes.add("model.positions is not given; it must be at least 1, and at least data.seq_len");
  if (c.positions < 0 || c.positions > largest_size)
    mistakes.add(fmt::format("model.positions = {}; it must be from 1 to {}", c.positions, largest_size));
  if (c.rope_theta != defaults.rope_theta) unused("rope_theta", "its positions are learned");
  if (c.rope_scaling) unused("rope_scaling", "its positions are learned");
}

/// Groups of which there are enough experts in those that a token keeps, and which have the two that score them.
void check_groups(const config::Model& c, Mistakes& mistakes) {
  const std::int64_t groups = c.router_groups, kept = c.router_groups_kept;
  if (groups < 1 || c.experts % groups != 0)
    return mistakes.add(fmt::format("model.router_groups = {}; it must divide model.experts = {}: {}", groups,
                                    c.experts, config::nearest_divisors(c.experts, groups)));
  if (kept < 1 || kept > groups)
    return mistakes.add(
        fmt::format("model.router_groups_kept = {}; it must be from 1 to model.router_groups = {}", kept, groups));
  const std::int64_t size = c.experts / groups;
  if (groups > 1 && size < 2)
    mistakes.add(
        fmt::format("model.router_groups = {}: a group of {} experts has {}, at least 2 score it; set at "
                    "most {}",
                    groups, c.experts, size, std::max<std::int64_t>(1, c.experts / 2)));
  if (kept * size < c.experts_per_token)
    mistakes.add(fmt::format(
        "model.router_groups_kept = {}: {} groups of {} experts have fewer than model.experts_per_token = {}; set {}",
        kept, kept, size, c.experts_per_token, (c.experts_per_token + size - 1) / size));
}

void check_shared(const config::Model& c, const Experts& experts, Mistakes& mistakes) {
  if (experts.shared == SharedExperts::none) return;
  if (c.shared_size < 1)
    return mistakes.add(
        fmt::format("model.shared_size is not given; model.architecture = \"{}\" has shared experts, whose width "
                    "together is at least 1",
                    c.architecture));
  const auto& keys = architecture(c.architecture).keys;
  const bool in_experts = std::any_of(keys.begin(), keys.end(), [](const KeyRow& row) { return row.of_expert_sizes; });
  if (in_experts && c.shared_size % experts.size != 0)
    mistakes.add(
        fmt::format("model.shared_size = {}; model.architecture = \"{}\" has a whole number of shared experts of "
                    "model.expert_size = {}: {} or {}",
                    c.shared_size, c.architecture, experts.size,
                    std::max<std::int64_t>(1, c.shared_size / experts.size) * experts.size,
                    (c.shared_size / experts.size + 1) * experts.size));
}

void check_experts(const config::Model& c, const Experts& experts, Mistakes& mistakes) {
  if (c.experts < 1)
    return mistakes.add(
        fmt::format("model.experts is not given; model.architecture = \"{}\" has at least 1", c.architecture));
  if (c.experts_per_token < 1 || c.experts_per_token > c.experts)
    mistakes.add(fmt::format("model.experts_per_token = {}; it must be from 1 to model.experts = {}",
                             c.experts_per_token, c.experts));
  if (c.dense_layers < 0 || c.dense_layers > c.layers)
    mistakes.add(
        fmt::format("model.dense_layers = {}; it must be from 0 to model.layers = {}", c.dense_layers, c.layers));
  if (!(c.router_scale > 0) || !std::isfinite(c.router_scale))
    mistakes.add(fmt::format("model.router_scale = {}; it must be above 0", c.router_scale));
  check_groups(c, mistakes);
  check_shared(c, experts, mistakes);
}

void check_joint_qkv(const config::Model& c, Mistakes& mistakes) {
  if (c.kv_heads != 0 && c.kv_heads != c.heads)
    mistakes.add(fmt::format("model.kv_heads = {}: model.architecture = \"{}\" has as many as heads, {}", c.kv_heads,
                             c.architecture, c.heads));
  if (c.head_dim != 0 && c.head_dim * c.heads != c.hidden_size)
    mistakes.add(fmt::format("model.head_dim = {}: model.architecture = \"{}\" has hidden_size / heads = {}",
                             c.head_dim, c.architecture, c.hidden_size / c.heads));
}

}  // namespace

Sizes completed_sizes(const config::Model& c, const Decoder& decoder) {
  Mistakes mistakes;
  check_given(c, mistakes);
  if (mistakes.empty()) check_heads(c, decoder, mistakes);
  if (mistakes.empty() && decoder.joint_qkv) check_joint_qkv(c, mistakes);
  if (mistakes.empty() && decoder.experts) check_experts(c, *decoder.experts, mistakes);
  check_form(c, decoder, mistakes);
  check_expressible(c, mistakes);
  check_numbers(c, decoder, mistakes);
  mistakes.raise("the model's sizes do not fit together");
  Sizes sizes{.vocab = c.vocab_size,
              .hidden = c.hidden_size,
              .intermediate = c.intermediate_size,
              .layers = c.layers,
              .heads = c.heads,
              .kv_heads = c.kv_heads == 0 ? c.heads : c.kv_heads,
              .head_dim = head_dim_of(c, decoder),
              .positions = c.positions,
              .norm_eps = c.norm_eps,
              .rope_theta = c.rope_theta,
              .rope_local_theta = local_theta_of(c),
              .rope_scaling = c.rope_scaling,
              .tied = c.tie_embeddings,
              .decoder = decoder};
  check_total(sizes, mistakes);
  mistakes.raise("the model is too large");
  return sizes;
}

}  // namespace trireme::model
