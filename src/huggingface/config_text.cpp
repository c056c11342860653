// SPDX-License-Identifier: Apache-2.0
#include "huggingface/config_text.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <variant>

#include "huggingface/generation_config.hpp"
#include "huggingface/windows.hpp"
#include "trireme/config/names.hpp"
#include "trireme/model/architecture.hpp"

namespace trireme::huggingface {

namespace {

using nlohmann::ordered_json;

/// Keys about the files that a model was read from, which those of an export have otherwise or not at all.
constexpr std::array about_files = {"_attn_implementation",
                                    "_attn_implementation_autoset",
                                    "_commit_hash",
                                    "_name_or_path",
                                    "attn_implementation",
                                    "auto_map",
                                    "dtype",
                                    "transformers_version"};

/// Keys of the model that training began from, where `table` has none of that name.
void repeat_kept(ordered_json& table, const std::string& kept) {
  const nlohmann::json given = kept_table(kept);
  for (const auto& [key, value] : given.items())
    if (!table.contains(key) && std::ranges::find(about_files, key) == about_files.end()) table[key] = value;
}

/// longest: max_position_embeddings, from which readers compute longrope's factor if it `follows`. The flag adds the
/// original length as a key next to the table.
ordered_json rope_scaling(const std::optional<config::RopeScaling>& scaling, std::int64_t longest, bool beside,
                          bool scales_queries) {
  if (!scaling) return nullptr;
  const double ratio = static_cast<double>(longest) / static_cast<double>(scaling->original_max_position_embeddings);
  const bool follows = std::max(1.0, ratio) == scaling->factor;
  ordered_json table{{"rope_type", config::to_text(scaling->type)}, {"factor", scaling->factor}};
  switch (scaling->type) {
    case config::RopeType::llama3:
      table["low_freq_factor"] = scaling->low_freq_factor;
      table["high_freq_factor"] = scaling->high_freq_factor;
      table["original_max_position_embeddings"] = scaling->original_max_position_embeddings;
      break;
    case config::RopeType::linear:
    case config::RopeType::dynamic: break;  // whose original length is max_position_embeddings
    case config::RopeType::longrope:        // transformers 4 takes no other keys for phi3
      table = {{"type", "longrope"}, {"short_factor", scaling->short_factor}, {"long_factor", scaling->long_factor}};
      if (scaling->attention_factor > 0) table["attention_factor"] = scaling->attention_factor;
      if (!follows) table["factor"] = scaling->factor;
      if (!beside) table["original_max_position_embeddings"] = scaling->original_max_position_embeddings;
      break;
    case config::RopeType::yarn:
      table["original_max_position_embeddings"] = scaling->original_max_position_embeddings;
      table["beta_fast"] = scaling->beta_fast;
      table["beta_slow"] = scaling->beta_slow;
      table["truncate"] = scaling->truncate;
      if (scaling->attention_factor > 0) table["attention_factor"] = scaling->attention_factor;
      if (scales_queries) table["llama_4_scaling_beta"] = scaling->llama_4_scaling_beta;
      if (scaling->mscale_all_dim > 0) {
        table["mscale_all_dim"] = scaling->mscale_all_dim;
        if (scaling->attention_factor == 1) {  // as published: readers without attention_factor divide the two
          table["mscale"] = scaling->mscale_all_dim;
          table.erase("attention_factor");
        }
      }
      break;
  }
  return table;
}

}  // namespace

namespace {

/// A row's value; zeros that are derived from other keys are written as that value.
ordered_json value_of(const model::KeyRow& row, const model::Model& model) {
  using M = config::Model;
  const M& config = model.config;
  if (row.member == model::Member(&M::query_pre_attn_scalar) && config.query_pre_attn_scalar == 0)
    return model.sizes.head_dim;
  if (row.member == model::Member(&M::attention_multiplier) && config.attention_multiplier == 0)
    return 1 / std::sqrt(static_cast<double>(model.sizes.head_dim));
  if (row.of_expert_sizes) return config.shared_size / config.expert_size;
  ordered_json value;
  std::visit([&](auto member) { value = config.*member; }, row.member);
  return row.null_is_zero && value == 0 ? ordered_json(nullptr) : value;
}

/// RoPE of layers with a window and of the others: transformers 5 reads the tables by type of layer.
void add_rope_by_type(ordered_json& table, const model::Architecture& a, const model::Model& model,
                      const ordered_json& scaling) {
  const double local = model.sizes.rope_local_theta;
  if (!a.local_theta_key.empty()) table[std::string(a.local_theta_key)] = local;
  ordered_json full = scaling.is_null() ? ordered_json{{"rope_type", "default"}} : scaling;
  full["rope_theta"] = model.config.rope_theta;
  table["rope_parameters"] = {{config::full_attention, full},
                              {config::sliding_attention, {{"rope_type", "default"}, {"rope_theta", local}}}};
}

}  // namespace

std::string hf_config_text(const model::Model& model, const HfWriteOptions& options) {
  const model::Architecture& a = model::architecture(model.architecture);
  const config::Model& config = model.config;
  ordered_json table;
  table["architectures"] = {a.class_name};
  table["model_type"] = a.model_type;
  for (const model::KeyRow& row : a.keys) table[std::string(row.key)] = value_of(row, model);
  if (double& std = *table["initializer_range"].get_ptr<double*>(); std > 1) std = 1;  // transformers 5 allows 0 to 1
  table[std::string(a.activation_key)] = a.activations.front();
  if (!model.sizes.decoder.learned_positions) {
    table["rope_theta"] = config.rope_theta;
    const bool beside = a.original_length_absent > 0;
    const ordered_json scaling =
        rope_scaling(config.rope_scaling, options.max_position_embeddings, beside, a.scales_queries);
    table["rope_scaling"] = scaling;
    const bool dynamic = config.rope_scaling && config.rope_scaling->type == config::RopeType::dynamic;
    const std::int64_t longest =
        dynamic ? config.rope_scaling->original_max_position_embeddings : options.max_position_embeddings;
    if (longest > 0) table["max_position_embeddings"] = longest;
    if (beside && config.rope_scaling)
      table["original_max_position_embeddings"] = config.rope_scaling->original_max_position_embeddings;
    if (a.decoder.local_rope) add_rope_by_type(table, a, model, scaling);
    if (a.rope_table_needed) {
      ordered_json whole = scaling.is_null() ? ordered_json{{"rope_type", "default"}} : scaling;
      whole["rope_theta"] = config.rope_theta;
      table["rope_parameters"] = table["rope_scaling"] = whole;
    }
  }
  write_windows(a, config, table);
  for (const model::FixedRow& row : a.fixed) table[std::string(row.key)] = row.value;
  for (const model::WordRow& row : a.only) table[std::string(row.key)] = row.word;
  for (const std::string_view key : a.ones) table[std::string(key)] = 1;
  for (const std::string_view key : a.dropout) table[std::string(key)] = 0.0;
  write_special_tokens(table, options, a.refuses_null);
  table["torch_dtype"] = options.dtype == DType::fp32 ? "float32" : "bfloat16";
  repeat_kept(table, options.kept);
  // Absent, some classes take a number, whose embedding they then leave alone.
  if (!table.contains("pad_token_id")) table["pad_token_id"] = nullptr;
  return table.dump(2) + "\n";
}

std::string hf_generation_config_text(const HfWriteOptions& options) {
  ordered_json table;
  repeat_kept(table, options.kept_generation);
  write_generation_tokens(table, options);
  return table.dump(2) + "\n";
}

}  // namespace trireme::huggingface
