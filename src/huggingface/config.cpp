// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <set>
#include <span>

#include "base/io/json.hpp"
#include "huggingface/bookkeeping_keys.hpp"
#include "huggingface/generation_config.hpp"
#include "huggingface/json_object.hpp"
#include "huggingface/mistakes.hpp"
#include "huggingface/multimodal/text_part.hpp"
#include "huggingface/refused_families.hpp"
#include "huggingface/rope.hpp"
#include "huggingface/windows.hpp"
#include "trireme/config/rules.hpp"
#include "trireme/huggingface/huggingface.hpp"
#include "trireme/model/architecture.hpp"

namespace trireme::huggingface {

namespace {

constexpr std::int64_t most_size = std::int64_t{1} << 31;  // products of two fit into 64 bits

using nlohmann::json;

/// A key whose feature changes the mathematics of the model.
struct Unhonoured {
  std::string_view key;
  std::string_view feature;
};

/// Must be absent, null, false, 0 or empty unless the architecture has it.
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
    Unhonoured{"quantization_config", "quantized weights other than fp8 in blocks of 128 x 128"},
};

/// Must be absent, null or 1 unless the architecture has it.
constexpr std::array one = {
    Unhonoured{"partial_rotary_factor", "partial rotation"},
    Unhonoured{"embedding_multiplier", "scaled embeddings"},
    Unhonoured{"residual_multiplier", "scaled residuals"},
    Unhonoured{"attention_multiplier", "another attention scale"},
    Unhonoured{"logits_scaling", "scaled logits"},
    Unhonoured{"logit_scale", "scaled logits"},
};

/// Whether quantization_config is that of DeepSeek-V3: e4m3 weights in square blocks with a scale each.
bool has_fp8_blocks(const JsonObject& config) {
  const json* value = config.find("quantization_config");
  if (value == nullptr || !value->is_object() || value->value("quant_method", json()) != "fp8") return false;
  return value->value("weight_block_size", json()) == json{fp8_block, fp8_block} &&
         value->value("fmt", json("e4m3")) == "e4m3";
}

void refuse_unhonoured(const JsonObject& config, const model::Architecture& a) {
  const auto has = [&](std::string_view key) {
    return (key == "quantization_config" && has_fp8_blocks(config)) ||
           (a.windows != model::Windows::none && key.ends_with("sliding_window")) ||
           (a.published_with_dropout && key == "attention_dropout") ||
           std::any_of(a.keys.begin(), a.keys.end(),
                       [&](const model::KeyRow& row) { return row.key == key || row.other_key == key; });
  };
  for (const auto& [key, feature] : off) {
    const json* value = config.find(std::string(key));
    if (value != nullptr && !has(key) && !is_off(*value))
      config.unexpected(std::string(key), fmt::format("none: {} are not supported", feature));
  }
  for (const auto& [key, feature] : a.off)
    if (const json* value = config.find(std::string(key)); value != nullptr && !is_off(*value))
      config.unexpected(std::string(key), fmt::format("none: {} are not supported", feature));
  for (const auto& [key, feature] : one) {
    const json* value = config.find(std::string(key));
    if (value != nullptr && !has(key) && (!value->is_number() || value->get<double>() != 1)) {
      config.unexpected(std::string(key), fmt::format("1: {} are not supported", feature));
    }
  }
  if (a.windows != model::Windows::none) return;
  const json* layers = config.find("layer_types");
  const bool plain = layers == nullptr ||
                     (layers->is_array() && std::all_of(layers->begin(), layers->end(),
                                                        [](const json& type) { return type == "full_attention"; }));
  if (!plain) config.unexpected("layer_types", "full_attention only");
}

/// Keys of config.json that no family reads and that are no
/// bookkeeping keys: properties of a model of another type.
std::vector<std::string> not_understood(const json& config) {
  constexpr std::size_t most_listed = 20;
  constexpr std::string_view read_by_all[] = {
      "attention_dropout", "hidden_act",        "layer_types",    "rope_parameters",    "rope_scaling",
      "rope_theta",        "hidden_activation", "sliding_window", "use_sliding_window", "eos_token_id",
      "bos_token_id",      "architectures",     "model_type"};
  std::vector<std::string> keys;
  for (const auto& [key, value] : config.items()) {
    const std::string& name = key;
    bool known = changes_no_values(name) ||
                 std::find(std::begin(read_by_all), std::end(read_by_all), name) != std::end(read_by_all);
    for (const model::Architecture& a : model::architectures())
      known = known || std::any_of(a.keys.begin(), a.keys.end(), [&](const model::KeyRow& r) { return r.key == name; });
    if (!known && keys.size() < most_listed) keys.push_back(io::in_quotes(name));
  }
  return keys;
}

/// The keys of a config.json that can be read, with their values, that nothing here follows.
std::vector<std::string> unread_keys(const JsonObject& config, const model::Architecture& a) {
  std::vector<std::string> keys = config.unread();
  std::erase_if(keys, [&](const std::string& key) {
    const std::string_view name = std::string_view(key).substr(0, key.find(" = ")).substr(config.named("").size());
    return changes_no_values(name) || std::find(a.dropout.begin(), a.dropout.end(), name) != a.dropout.end();
  });
  return keys;
}

/// ": it has ...; the nearest family is llama"; "" for types that are not listed.
std::string reason_for(std::string_view model_type) {
  const std::span<const RefusedFamily> families = refused_families();
  const auto found = std::ranges::find(families, model_type, &RefusedFamily::model_type);
  if (found == families.end()) return "";
  return fmt::format(": {}; the nearest family is {}", found->reason, found->nearest);
}

/// The architecture that model_type names; nothing, and a mistake, when it names none.
const model::Architecture* architecture_of(const JsonObject& config, const json& parsed, Mistakes& mistakes) {
  const std::optional<std::string> type = config.text("model_type");
  if (!type) {
    config.missing("model_type");
    return nullptr;
  }
  std::vector<std::string_view> known;
  for (const model::Architecture& a : model::architectures()) {
    if (a.model_type == *type || std::ranges::find(a.other_types, *type) != a.other_types.end()) return &a;
    known.push_back(a.model_type);
  }
  if (const json* text = config.find("text_config"); text != nullptr && text->is_object()) {
    std::vector<std::string_view> read;
    for (const model::Multimodal& m : model::multimodals()) read.push_back(m.model_type);
    mistakes.add(fmt::format("model_type = {} is a multimodal model that is not read; the text parts of {} are",
                             io::in_quotes(*type), fmt::join(read, ", ")));
    return nullptr;
  }
  const std::vector<std::string> others = not_understood(parsed);
  mistakes.add(fmt::format("model_type = {}{}; {} can be read{}", io::in_quotes(*type), reason_for(*type),
                           fmt::join(known, ", "),
                           others.empty() ? "" : fmt::format(". No family has its keys {}", fmt::join(others, ", "))));
  return nullptr;
}

void check_fixed(const JsonObject& config, const model::Architecture& a, Mistakes& mistakes) {
  const json* classes = config.find("architectures");
  const bool right = classes == nullptr || (classes->is_array() && std::find(classes->begin(), classes->end(),
                                                                             a.class_name) != classes->end());
  if (!right) config.unexpected("architectures", fmt::format("[\"{}\"]", a.class_name));
  // Gemma's files have a second name for it, of which some classes read one and some the other.
  for (const std::string& key : std::set<std::string>{std::string(a.activation_key), "hidden_activation", "hidden_act"})
    if (const auto act = config.text(key);
        act && std::find(a.activations.begin(), a.activations.end(), *act) == a.activations.end())
      mistakes.add(fmt::format("{} = {}; only {} is supported", key, io::in_quotes(*act), a.activations.front()));
  for (const model::FixedRow& row : a.fixed)
    if (config.flag(std::string(row.key)).value_or(row.value) != row.value)
      config.unexpected(std::string(row.key), fmt::format("{}: {} is not supported", row.value, row.feature));
  for (const model::WordRow& row : a.only)
    if (config.text(std::string(row.key)).value_or(std::string(row.word)) != row.word)
      config.unexpected(std::string(row.key), fmt::format("\"{}\", which {} computes", row.word, a.class_name));
  for (const std::string_view key : a.ones)
    if (config.integer(std::string(key), 0).value_or(1) != 1)
      config.unexpected(std::string(key), fmt::format("1, which {} computes", a.class_name));
}

/// Keys that follow from others in latent attention: transformers writes them.
void check_latent(const JsonObject& config, const config::Model& model) {
  const auto must_be = [&](const char* key, std::int64_t value, const char* why) {
    if (config.integer(key, 1).value_or(value) != value) config.unexpected(key, fmt::format("{}: {}", value, why));
  };
  must_be("head_dim", model.rope_dim, "qk_rope_head_dim");
  must_be("qk_head_dim", model.nope_dim + model.rope_dim, "qk_nope_head_dim + qk_rope_head_dim");
  if (model.kv_heads != 0)
    must_be("num_key_value_heads", model.heads, "as many as num_attention_heads, since every head has keys and values");
}

void read_row(const JsonObject& config, const model::KeyRow& row, std::int64_t config::Model::*member,
              config::Model& model) {
  const bool other =
      !row.other_key.empty() && !config.has(std::string(row.key)) && config.has(std::string(row.other_key));
  const std::string key(other ? row.other_key : row.key);
  const std::int64_t absent = static_cast<std::int64_t>(row.absent.value_or(0));
  if (row.null_is_zero && config.is_null(key))
    model.*member = 0;
  else
    model.*member = row.absent ? config.integer(key, row.least).value_or(absent) : config.required_integer(key);
  if (model.*member <= most_size) return;
  config.unexpected(key, fmt::format("at most {}", most_size));
  model.*member = 1;
}
void read_row(const JsonObject& config, const model::KeyRow& row, double config::Model::*member, config::Model& model) {
  const std::string key(row.key);
  if (row.null_is_zero && config.is_null(key))
    model.*member = 0;
  else
    model.*member = row.absent ? config.positive(key).value_or(*row.absent) : config.required_positive(key);
}
void read_row(const JsonObject& config, const model::KeyRow& row, bool config::Model::*member, config::Model& model) {
  model.*member = config.flag(std::string(row.key)).value_or(row.absent.value_or(0) != 0);
}

config::Model read_model(const JsonObject& config, const model::Architecture& a, std::vector<std::string>& unread,
                         Mistakes& mistakes) {
  config::Model model;
  model.architecture = a.name;
  for (const model::KeyRow& row : a.keys)
    std::visit([&](auto member) { read_row(config, row, member, model); }, row.member);
  for (const model::KeyRow& row : a.keys)
    if (row.of_expert_sizes) model.shared_size *= model.expert_size;
  for (const model::KeyRow& row : a.keys)
    if (const auto* member = std::get_if<std::int64_t config::Model::*>(&row.member);
        member != nullptr && row.times_hidden > 0 && model.**member == 0 && model.hidden_size <= config::largest_width)
      model.** member = row.times_hidden * model.hidden_size;
  if (a.decoder.latent) {
    check_latent(config, model);
    model.kv_heads = model.heads;
    model.head_dim = model.nope_dim + model.rope_dim;
  }
  if (model.kv_heads == 0) model.kv_heads = model.heads;
  if (model.head_dim == 0) model.head_dim = model.hidden_size / std::max<std::int64_t>(1, model.heads);
  read_windows(config, a, model);
  if (a.skips_rope) read_no_rope_layers(config, model);
  if (a.lists_dense_layers) read_dense_layers(config, model);
  if (a.lists_mlp_types) read_mlp_types(config, model);
  if (a.decoder.learned_positions) return model;
  Rope rope = read_rope(config, a, mistakes);
  unread = std::move(rope.unread);
  if (rope.partial && a.expresses(&config::Model::partial_rotary_factor)) {
    if (config.has("partial_rotary_factor") && *rope.partial != model.partial_rotary_factor)
      config.unexpected("partial_rotary_factor", "the same as in rope_parameters");
    model.partial_rotary_factor = *rope.partial;
  }
  if (a.decoder.local_rope) model.rope_local_theta = rope.local_theta;
  model.rope_theta = rope.theta;
  model.rope_scaling = rope.scaling;
  return model;
}

}  // namespace

std::vector<std::int64_t> token_ids(const JsonObject& config, const std::string& key) {
  const json* value = config.find(key);
  if (value == nullptr) return {};
  if (!value->is_array()) {
    const auto id = config.integer(key, -1);  // -1 means none in some exports
    return id && *id >= 0 ? std::vector{*id} : std::vector<std::int64_t>{};
  }
  std::vector<std::int64_t> ids;
  for (const json& id : *value) {
    if (id.is_number_unsigned()) ids.push_back(id.get<std::int64_t>());
  }
  if (ids.size() != value->size()) config.unexpected(key, "token ids");
  return ids;
}

namespace {

/// Reads a family's config.json, or the text part of one. where: prefix of its keys in messages.
HfConfig read_text_config(const json& parsed, const std::string& where, Mistakes& mistakes) {
  const JsonObject config(parsed, where, mistakes);
  const model::Architecture* known = architecture_of(config, parsed, mistakes);
  if (known == nullptr) return {};
  const model::Architecture& a = *known;
  check_fixed(config, a, mistakes);
  refuse_unhonoured(config, a);
  std::vector<std::string> unread;
  config::Model model = read_model(config, a, unread, mistakes);
  if (const auto beyond = config::beyond_counting(model)) mistakes.add(*beyond);
  const std::int64_t positions = model.positions;
  HfConfig read{
      .model = std::move(model),
      .max_position_embeddings = positions > 0 ? positions : config.integer("max_position_embeddings", 1).value_or(0),
      .bos_token_id = config.integer("bos_token_id", -1),
      .eos_token_ids = token_ids(config, "eos_token_id"),
      .unread_keys = std::move(unread)};
  if (read.bos_token_id && *read.bos_token_id < 0) read.bos_token_id.reset();
  read.fp8_blocks = has_fp8_blocks(config);
  json kept = json::object();
  for (const auto& [key, value] : parsed.items())
    if (!config.asked(key) || is_off(value) || key == "bos_token_id" || key == "eos_token_id") kept[key] = value;
  read.kept = kept.dump(-1, ' ', false, json::error_handler_t::replace);
  const std::vector<std::string> others = unread_keys(config, a);
  read.unread_keys.insert(read.unread_keys.end(), others.begin(), others.end());
  return read;
}

/// The keys of a JSON table that change nothing that a model computes.
std::string bookkeeping_of(const std::string& table) {
  json kept = json::parse(table.empty() ? "{}" : table);
  for (auto key = kept.begin(); key != kept.end();)
    key = changes_no_values(key.key()) || key.key() == "bos_token_id" || key.key() == "eos_token_id" ? std::next(key)
                                                                                                     : kept.erase(key);
  return kept.dump();
}

/// The classes of multimodal models use the head without the scaling that the text model's own class applies after it.
void refuse_unapplied(const config::Model& model, const model::Multimodal& multimodal, const std::string& where,
                      Mistakes& mistakes) {
  const auto refuse = [&](std::string_view key, double value, double off) {
    if (value != off)
      mistakes.add(
          fmt::format("{}{} = {}; expected none: {} does not apply it", where, key, value, multimodal.class_name));
  };
  refuse("final_logit_softcapping", model.final_logit_softcapping, config::Model{}.final_logit_softcapping);
  refuse("logits_scaling", model.logits_scaling, config::Model{}.logits_scaling);
}

}  // namespace

HfConfig parse_hf_config(std::string_view text, const std::string& file) {
  const json parsed = io::parse_json(file, text);
  if (!parsed.is_object()) throw CheckpointError(fmt::format("{}: is not a table; get an intact copy", file));
  Mistakes mistakes;
  const auto type = parsed.find("model_type");
  const model::Multimodal* multimodal =
      type != parsed.end() && type->is_string() ? model::multimodal(type->get_ref<const std::string&>()) : nullptr;
  TextPart part;
  if (multimodal != nullptr) part = text_part(parsed, *multimodal, mistakes);
  const bool readable = multimodal == nullptr || !part.config.is_null();
  HfConfig read =
      readable ? read_text_config(multimodal != nullptr ? part.config : parsed, part.where, mistakes) : HfConfig{};
  if (multimodal != nullptr) refuse_unapplied(read.model, *multimodal, part.where, mistakes);
  if (multimodal != nullptr) read.kept = bookkeeping_of(read.kept);
  read.multimodal = multimodal;
  read.tied_unsaid = part.tied_unsaid;
  raise(mistakes, fmt::format("{}: this model cannot be read as it is", file));
  for (const std::string& key : part.unread)
    if (!changes_no_values(std::string_view(key).substr(0, key.find(" = ")))) read.unread_keys.push_back(key);
  return read;
}

}  // namespace trireme::huggingface
