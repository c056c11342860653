// SPDX-License-Identifier: Apache-2.0
#include "huggingface/config_text.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "trireme/model/huggingface.hpp"

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
  return {{"rope_type", "llama3"},
          {"factor", scaling->factor},
          {"low_freq_factor", scaling->low_freq_factor},
          {"high_freq_factor", scaling->high_freq_factor},
          {"original_max_position_embeddings", scaling->original_max_position_embeddings}};
}

}  // namespace

std::string hf_config_text(const model::Model& model, const HfWriteOptions& options) {
  const model::HfForm& form = model::hf_form(model.architecture);
  const model::Sizes& sizes = model.sizes;
  config::Model written;
  written.vocab_size = sizes.vocab;
  written.hidden_size = sizes.hidden;
  written.intermediate_size = sizes.intermediate;
  written.layers = sizes.layers;
  written.heads = sizes.heads;
  written.kv_heads = sizes.kv_heads;
  written.head_dim = sizes.head_dim;
  written.positions = sizes.positions;
  ordered_json table;
  table["architectures"] = {form.class_name};
  table["model_type"] = form.model_type;
  for (const model::HfSize& size : form.sizes) table[std::string(size.key)] = written.*size.member;
  table[std::string(form.activation)] = form.activations.front();
  table["initializer_range"] =
      std::min(1.0, model.parameter_blocks.front().parameters.front().std);  // transformers 5 allows 0 to 1
  table[std::string(form.norm_eps)] = sizes.norm_eps;
  if (form.rotary) {
    table["rope_theta"] = sizes.rope_theta;
    table["rope_scaling"] = rope_scaling(sizes.rope_scaling);
    table["max_position_embeddings"] = options.max_position_embeddings;
    table["attention_dropout"] = 0.0;
  }
  table["tie_word_embeddings"] = sizes.tied;
  for (const model::HfFlag& flag : form.flags) table[std::string(flag.key)] = flag.value;
  for (const std::string_view key : form.dropout) table[std::string(key)] = 0.0;
  add_special_tokens(table, options);
  table["torch_dtype"] = options.dtype == DType::fp32 ? "float32" : "bfloat16";
  return table.dump(2) + "\n";
}

std::string hf_generation_config_text(const HfWriteOptions& options) {
  ordered_json table;
  add_special_tokens(table, options);
  return table.dump(2) + "\n";
}

}  // namespace trireme::huggingface
