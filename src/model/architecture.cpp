// SPDX-License-Identifier: Apache-2.0
#include "trireme/model/architecture.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "model/families.hpp"
#include "trireme/base/error.hpp"

namespace trireme::model {

const NameRow& Architecture::name_of(Role role) const {
  const auto row = std::find_if(names.begin(), names.end(), [&](const NameRow& r) { return r.role == role; });
  invariant(row != names.end(), fmt::format("{} names no tensor for role {}", name, static_cast<int>(role)));
  return *row;
}

bool Architecture::expresses(Member member) const {
  return std::any_of(keys.begin(), keys.end(), [&](const KeyRow& row) { return row.member == member; });
}

std::span<const Architecture> architectures() {
  static const std::vector<Architecture> all = [] {
    std::vector<Architecture> list;
    for (const auto family : families) list.push_back(family());
    return list;
  }();
  return all;
}

const Architecture& architecture(std::string_view name) {
  const auto all = architectures();
  const auto found = std::find_if(all.begin(), all.end(), [&](const Architecture& a) { return a.name == name; });
  if (found != all.end()) return *found;
  std::vector<std::string_view> known;
  for (const Architecture& one : all) known.push_back(one.name);
  throw ConfigError(
      fmt::format("model.architecture = \"{}\" is not known; use one of: {}", name, fmt::join(known, ", ")));
}

namespace {

/// Factor of the scores of latent attention: that of a head's width, stretched with the context (DeepSeek-V2 2024).
double latent_score_scale(const Latent& latent, const std::optional<config::RopeScaling>& scaling) {
  const double plain = 1 / std::sqrt(static_cast<double>(std::max<std::int64_t>(1, latent.head_dim())));
  if (!scaling || scaling->type != config::RopeType::yarn || scaling->factor <= 1) return plain;
  const double stretch = 1 + 0.1 * scaling->mscale_all_dim * std::log(scaling->factor);
  return plain * stretch * stretch;
}

}  // namespace

Decoder decoder_of(const config::Model& config) {
  const Architecture& family = architecture(config.architecture);
  Decoder decoder = family.decoder;
  if (config.attention_bias) decoder.qkv_bias = true;
  if (config.attention_bias && family.o_bias_with_qkv) decoder.o_bias = true;
  if (config.mlp_bias) decoder.mlp_bias = true;
  decoder.rotary_part = config.partial_rotary_factor;
  decoder.embedding_scale = config.embedding_multiplier;
  decoder.residual_scale = config.residual_multiplier;
  decoder.logit_divisor = config.logits_scaling;
  decoder.score_scale = config.attention_multiplier;
  if (config.query_pre_attn_scalar > 0)
    decoder.score_scale = 1 / std::sqrt(static_cast<double>(config.query_pre_attn_scalar));
  decoder.score_softcap = config.attn_logit_softcapping;
  decoder.logit_softcap = config.final_logit_softcapping;
  if (config.qk_norm) decoder.qk_norm = QkNorm::head;
  if (decoder.latent) {
    decoder.latent = Latent{.q_rank = config.q_rank,
                            .kv_rank = config.kv_rank,
                            .nope = config.nope_dim,
                            .rope = config.rope_dim,
                            .value = config.value_dim};
    decoder.adjacent_pairs = config.rope_interleave;
    decoder.score_scale = latent_score_scale(*decoder.latent, config.rope_scaling);
  }
  if (decoder.experts) {
    Experts& experts = *decoder.experts;
    experts.count = config.experts;
    experts.per_token = config.experts_per_token;
    experts.size = config.expert_size > 0 ? config.expert_size : config.intermediate_size;
    experts.dense_layers = config.dense_layers;
    experts.normalized = config.router_normalize;
    experts.groups = config.router_groups;
    experts.groups_kept = config.router_groups_kept;
    experts.scale = config.router_scale;
    experts.shared_size = config.shared_size;
  }
  return decoder;
}

std::int64_t window_of(const config::Model& config, std::int64_t layer) {
  const std::vector<std::string>& types = config.layer_types;
  if (types.empty()) return config.sliding_window;
  return types[static_cast<std::size_t>(layer) % types.size()] == config::sliding_attention ? config.sliding_window : 0;
}

config::Model in_shortest_form(config::Model config) {
  if (config.no_rope_interval > config.layers) config.no_rope_interval = 0;
  if (config.layer_types.empty()) return config;
  std::vector<std::string> types;
  for (std::int64_t layer = 0; layer < config.layers; ++layer)
    types.push_back(config.layer_types[static_cast<std::size_t>(layer) % config.layer_types.size()]);
  const auto repeats_after = [&](std::size_t period) {
    return std::equal(types.begin() + static_cast<std::ptrdiff_t>(period), types.end(), types.begin());
  };
  std::size_t period = 1;
  while (period < types.size() && !repeats_after(period)) ++period;
  types.resize(std::min(period, types.size()));
  if (std::find(types.begin(), types.end(), config::sliding_attention) == types.end()) {
    config.sliding_window = 0;
    types.clear();
  }
  if (types.size() == 1) types.clear();
  config.layer_types = std::move(types);
  return config;
}

double local_theta_of(const config::Model& config) {
  return config.rope_local_theta > 0 ? config.rope_local_theta : config.rope_theta;
}

bool rotates(const config::Model& config, std::int64_t layer) {
  if (config.sliding_window > 0 && architecture(config.architecture).turns_windows_only)
    return window_of(config, layer) > 0;
  return config.no_rope_interval == 0 || (layer + 1) % config.no_rope_interval != 0;
}

}  // namespace trireme::model
