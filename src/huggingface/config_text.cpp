// SPDX-License-Identifier: Apache-2.0
#include "huggingface/config_text.hpp"

#include <nlohmann/json.hpp>
#include <string>
#include <variant>

#include "huggingface/windows.hpp"
#include "trireme/config/names.hpp"
#include "trireme/model/architecture.hpp"

namespace trireme::huggingface {

namespace {

using nlohmann::ordered_json;

/// LlamaConfig's own defaults are 1 and 2, ordinary tokens of other vocabularies: so null is written where there is
/// none.
void add_special_tokens(ordered_json& table, const HfWriteOptions& options) {
  table["bos_token_id"] = options.bos_token_id ? ordered_json(*options.bos_token_id) : ordered_json(nullptr);
  table["eos_token_id"] = nullptr;
  if (options.eos_token_ids.size() == 1) table["eos_token_id"] = options.eos_token_ids.front();
  if (options.eos_token_ids.size() > 1) table["eos_token_id"] = options.eos_token_ids;
}

ordered_json rope_scaling(const std::optional<config::RopeScaling>& scaling) {
  if (!scaling) return nullptr;
  ordered_json table{{"rope_type", config::to_text(scaling->type)}, {"factor", scaling->factor}};
  switch (scaling->type) {
    case config::RopeType::llama3:
      table["low_freq_factor"] = scaling->low_freq_factor;
      table["high_freq_factor"] = scaling->high_freq_factor;
      table["original_max_position_embeddings"] = scaling->original_max_position_embeddings;
      break;
    case config::RopeType::linear: break;
    case config::RopeType::yarn:
      table["original_max_position_embeddings"] = scaling->original_max_position_embeddings;
      table["beta_fast"] = scaling->beta_fast;
      table["beta_slow"] = scaling->beta_slow;
      table["truncate"] = scaling->truncate;
      if (scaling->attention_factor > 0) table["attention_factor"] = scaling->attention_factor;
      break;
  }
  return table;
}

}  // namespace

std::string hf_config_text(const model::Model& model, const HfWriteOptions& options) {
  const model::Architecture& a = model::architecture(model.architecture);
  const config::Model& config = model.config;
  ordered_json table;
  table["architectures"] = {a.class_name};
  table["model_type"] = a.model_type;
  for (const model::KeyRow& row : a.keys)
    std::visit([&](auto member) { table[std::string(row.key)] = config.*member; }, row.member);
  if (double& std = *table["initializer_range"].get_ptr<double*>(); std > 1) std = 1;  // transformers 5 allows 0 to 1
  table[std::string(a.activation_key)] = a.activations.front();
  if (!model.sizes.decoder.learned_positions) {
    table["rope_theta"] = config.rope_theta;
    table["rope_scaling"] = rope_scaling(config.rope_scaling);
    table["max_position_embeddings"] = options.max_position_embeddings;
  }
  write_windows(a, config, table);
  for (const model::FixedRow& row : a.fixed) table[std::string(row.key)] = row.value;
  for (const std::string_view key : a.dropout) table[std::string(key)] = 0.0;
  add_special_tokens(table, options);
  table["pad_token_id"] = nullptr;  // absent, some classes take a number, whose embedding they then leave alone
  table["torch_dtype"] = options.dtype == DType::fp32 ? "float32" : "bfloat16";
  return table.dump(2) + "\n";
}

std::string hf_generation_config_text(const HfWriteOptions& options) {
  ordered_json table;
  add_special_tokens(table, options);
  return table.dump(2) + "\n";
}

}  // namespace trireme::huggingface
