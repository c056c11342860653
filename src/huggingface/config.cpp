// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "base/io/json.hpp"
#include "huggingface/json_object.hpp"
#include "huggingface/mistakes.hpp"
#include "huggingface/rope.hpp"
#include "trireme/config/rules.hpp"
#include "trireme/huggingface/huggingface.hpp"
#include "trireme/model/huggingface.hpp"

namespace trireme::huggingface {

namespace {

constexpr std::int64_t most_size = std::int64_t{1} << 31;  // products of two fit into 64 bits

using nlohmann::json;

/// A key whose feature changes the mathematics of the model.
struct Unhonoured {
  std::string_view key;
  std::string_view feature;
};

/// Must be absent, null, false, 0 or empty.
constexpr std::array off = {
    Unhonoured{"attention_dropout", "dropout"},
    Unhonoured{"sliding_window", "sliding-window attention"},
    Unhonoured{"use_sliding_window", "sliding-window attention"},
    Unhonoured{"qk_norm", "query/key norms"},
    Unhonoured{"use_qk_norm", "query/key norms"},
    Unhonoured{"attn_logit_softcapping", "softcaps"},
    Unhonoured{"final_logit_softcapping", "softcaps"},
    Unhonoured{"logit_softcap", "softcaps"},
    Unhonoured{"num_experts", "mixtures of experts"},
    Unhonoured{"num_local_experts", "mixtures of experts"},
    Unhonoured{"quantization_config", "quantized weights"},
};

/// Must be absent, null or 1.
constexpr std::array one = {
    Unhonoured{"partial_rotary_factor", "partial rotation"},
    Unhonoured{"embedding_multiplier", "scaled embeddings"},
    Unhonoured{"residual_multiplier", "scaled residuals"},
    Unhonoured{"attention_multiplier", "another attention scale"},
    Unhonoured{"logits_scaling", "scaled logits"},
    Unhonoured{"logit_scale", "scaled logits"},
};

bool is_off(const json& value) {
  if (value.is_number()) return value.get<double>() == 0;
  if (value.is_boolean()) return !value.get<bool>();
  return value.is_structured() && value.empty();
}

void refuse_unhonoured(const JsonObject& config) {
  for (const auto& [key, feature] : off) {
    const json* value = config.find(std::string(key));
    if (value != nullptr && !is_off(*value))
      config.unexpected(std::string(key), fmt::format("none: {} are not honoured", feature));
  }
  for (const auto& [key, feature] : one) {
    const json* value = config.find(std::string(key));
    if (value != nullptr && !(value->is_number() && value->get<double>() == 1)) {
      config.unexpected(std::string(key), fmt::format("1: {} are not honoured", feature));
    }
  }
  const json* layers = config.find("layer_types");
  const bool plain = layers == nullptr ||
                     (layers->is_array() && std::all_of(layers->begin(), layers->end(),
                                                        [](const json& type) { return type == "full_attention"; }));
  if (!plain) config.unexpected("layer_types", "full_attention only");
}

/// The form that model_type names; nothing, and a mistake, when it names none.
const model::HfForm* form_of(const JsonObject& config, Mistakes& mistakes) {
  const std::optional<std::string> type = config.text("model_type");
  if (!type) {
    config.missing("model_type");
    return nullptr;
  }
  std::vector<std::string_view> known;
  for (const model::HfForm& form : model::hf_forms()) {
    if (form.model_type == *type) return &form;
    known.push_back(form.model_type);
  }
  mistakes.add(fmt::format("model_type = {}; {} can be read", io::in_quotes(*type), fmt::join(known, " and ")));
  return nullptr;
}

void check_form(const JsonObject& config, const model::HfForm& form, Mistakes& mistakes) {
  const json* architectures = config.find("architectures");
  const bool right = architectures == nullptr ||
                     (architectures->is_array() &&
                      std::find(architectures->begin(), architectures->end(), form.class_name) != architectures->end());
  if (!right) config.unexpected("architectures", fmt::format("[\"{}\"]", form.class_name));
  const auto act = config.text(std::string(form.activation));
  if (act && std::find(form.activations.begin(), form.activations.end(), *act) == form.activations.end())
    mistakes.add(fmt::format("{} = {}; {} is the one that is honoured", form.activation, io::in_quotes(*act),
                             form.activations.front()));
  for (const model::HfFlag& flag : form.flags)
    if (config.flag(std::string(flag.key)).value_or(flag.value) != flag.value)
      config.unexpected(std::string(flag.key), fmt::format("{}: {} is not honoured", flag.value, flag.feature));
}

config::Model read_sizes(const JsonObject& config, const model::HfForm& form, Mistakes& mistakes) {
  config::Model model;
  model.architecture = form.architecture;
  for (const model::HfSize& size : form.sizes) {
    const std::string key(size.key);
    model.*size.member = size.required ? config.required_integer(key) : config.integer(key, 1).value_or(0);
    if (model.*size.member <= most_size) continue;
    config.unexpected(key, fmt::format("at most {}", most_size));
    model.*size.member = 1;
  }
  for (const model::HfSize& size : form.sizes)
    if (model.*size.member == 0 && model.hidden_size <= config::largest_width)
      model.*size.member = size.times_hidden * model.hidden_size;
  if (model.kv_heads == 0) model.kv_heads = model.heads;
  if (model.head_dim == 0) model.head_dim = model.hidden_size / std::max<std::int64_t>(1, model.heads);
  model.norm_eps = config.positive(std::string(form.norm_eps)).value_or(form.norm_eps_default);
  model.tie_embeddings = config.flag("tie_word_embeddings").value_or(form.tied_default);
  model.init_std = config.positive("initializer_range").value_or(model.init_std);
  if (!form.rotary) return model;
  const Rope rope = read_rope(config, mistakes);
  model.rope_theta = rope.theta;
  model.rope_scaling = rope.scaling;
  return model;
}

/// Token ids for stopping: a number or a list of them.
std::vector<std::int64_t> token_ids(const JsonObject& config, const std::string& key) {
  const json* value = config.find(key);
  if (value == nullptr) return {};
  if (!value->is_array()) {
    const auto id = config.integer(key, -1);  // -1 stands for none in some exports
    return id && *id >= 0 ? std::vector{*id} : std::vector<std::int64_t>{};
  }
  std::vector<std::int64_t> ids;
  for (const json& id : *value) {
    if (id.is_number_unsigned()) ids.push_back(id.get<std::int64_t>());
  }
  if (ids.size() != value->size()) config.unexpected(key, "token ids");
  return ids;
}

}  // namespace

HfConfig parse_hf_config(std::string_view text, const std::string& file) {
  const json parsed = io::parse_json(file, text);
  if (!parsed.is_object()) throw CheckpointError(fmt::format("{}: is not a table; get a sound copy", file));
  Mistakes mistakes;
  const JsonObject config(parsed, "", mistakes);
  const model::HfForm* known = form_of(config, mistakes);
  const model::HfForm& form = known != nullptr ? *known : model::hf_forms().front();
  check_form(config, form, mistakes);
  refuse_unhonoured(config);
  config::Model model = read_sizes(config, form, mistakes);
  if (const auto beyond = config::beyond_counting(model)) mistakes.add(*beyond);
  const std::int64_t positions = model.positions;
  HfConfig read{
      .model = std::move(model),
      .max_position_embeddings = positions > 0 ? positions : config.integer("max_position_embeddings", 1).value_or(0),
      .bos_token_id = config.integer("bos_token_id", -1),
      .eos_token_ids = token_ids(config, "eos_token_id")};
  if (read.bos_token_id && *read.bos_token_id < 0) read.bos_token_id.reset();
  raise(mistakes, fmt::format("{}: this model cannot be read as it is", file));
  return read;
}

}  // namespace trireme::huggingface
