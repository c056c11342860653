// SPDX-License-Identifier: Apache-2.0
#include "huggingface/multimodal/text_part.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "base/io/json.hpp"
#include "trireme/model/architecture.hpp"

namespace trireme::huggingface {

namespace {

using model::Multimodal;
using model::TextType;
using nlohmann::json;

/// Keys of the outer table for tokens of pictures and their embeddings.
constexpr auto of_pictures = std::to_array<std::string_view>({
    "_pad_token_id",         "boi_token_index",           "eoi_token_index",
    "ignore_index",          "image_grid_pinpoints",      "image_seq_length",
    "image_token_id",        "image_token_index",         "initializer_range",
    "mm_tokens_per_image",   "multimodal_projector_bias", "projector_hidden_act",
    "scale_factor",          "spatial_merge_size",        "use_image_newline_parameter",
    "video_token_id",        "video_token_index",         "vision_config",
    "vision_end_token_id",   "vision_feature_layer",      "vision_feature_select_strategy",
    "vision_start_token_id", "vision_token_id",
});
/// Keys that both tables may have; other programs read the one or the other.
constexpr auto sizes =
    std::to_array<std::string_view>({"vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers",
                                     "num_attention_heads", "num_key_value_heads", "head_dim"});
constexpr auto of_both = std::to_array<std::string_view>({"bos_token_id", "eos_token_id"});

template <class List>
bool holds(const List& list, std::string_view key) {
  return std::find(std::begin(list), std::end(list), key) != std::end(list);
}

bool is_given(const json& table, std::string_view key) {
  const auto found = table.find(key);
  return found != table.end() && !found->is_null();
}

/// Type of text_config; nothing, and a mistake, when it is not supported.
const TextType* type_of(const json& text, const Multimodal& multimodal, Mistakes& mistakes) {
  const json given = text.contains("model_type") ? text["model_type"] : json();
  const std::string type = given.is_string() ? given.get<std::string>() : std::string(multimodal.text_type);
  const bool own = multimodal.flat && type == multimodal.model_type;  // as files of transformers 4 have it
  const TextType* found = model::text_type(own ? multimodal.text_type : std::string_view(type));
  const bool allowed =
      found != nullptr && (multimodal.any_text ? !found->mrope : found->model_type == multimodal.text_type);
  if (allowed || own) return found;
  mistakes.add(fmt::format(
      "model_type = \"{}\" is a multimodal model, and its text_config.model_type = {} is not read: expected {}",
      multimodal.model_type, io::in_quotes(type),
      multimodal.any_text ? "that of a family (trireme models)" : fmt::format("\"{}\"", multimodal.text_type)));
  return nullptr;
}

/// RoPE of three positions in sections is that of one position where the three are equal.
void forget_sections(json& text) {
  for (const char* name : {"rope_scaling", "rope_parameters"}) {
    const auto found = text.find(name);
    if (found == text.end() || !found->is_object()) continue;
    for (const char* key : {"mrope_section", "mrope_interleaved"}) found->erase(key);
    for (const char* key : {"rope_type", "type"})
      if (found->contains(key) && (*found)[key] == "mrope") (*found)[key] = "default";
  }
}

bool theta_is_given(const json& text) {
  const auto in = [&](const char* name) {
    const auto found = text.find(name);
    return found != text.end() && found->is_object() && is_given(*found, "rope_theta");
  };
  return is_given(text, "rope_theta") || in("rope_parameters") || in("rope_scaling");
}

void fill_in(json& text, const TextType& type) {
  for (const model::AbsentNumber& number : type.absent) {
    const std::string key(number.key);
    if (text.contains(key) || (key == "rope_theta" && theta_is_given(text))) continue;
    const auto whole = static_cast<std::int64_t>(number.value);
    text[key] = static_cast<double>(whole) == number.value ? json(whole) : json(number.value);
  }
  text["model_type"] = type.family_type;
}

/// tie_word_embeddings of the two tables: the outer one's, as transformers 5 has it; it was text_config's before.
bool tied(const json& outer, const json& text, const Multimodal& multimodal, TextPart& part, Mistakes& mistakes) {
  constexpr const char* key = "tie_word_embeddings";
  const auto flag = [&](const json& table, const std::string& where) -> const json* {
    if (!is_given(table, key)) return nullptr;
    if (table[key].is_boolean()) return &table[key];
    mistakes.add(fmt::format("{}{} = {}; expected true or false", where, key, io::shown(table[key])));
    return nullptr;
  };
  const json* of_outer = flag(outer, "");
  const json* of_text = part.where.empty() ? nullptr : flag(text, part.where);
  part.tied_unsaid = of_outer == nullptr && of_text == nullptr;
  const bool text_ties = of_text != nullptr && of_text->get<bool>();
  if (multimodal.text_may_tie && text_ties) return true;
  if (of_outer != nullptr) return of_outer->get<bool>();
  return of_text != nullptr ? text_ties : multimodal.tied_absent;
}

/// Checks keys of the outer table other than the text part.
void check_outer(const json& outer, const json& text, const Multimodal& multimodal, TextPart& part,
                 Mistakes& mistakes) {
  const auto family_reads = [](std::string_view key) {
    return std::ranges::any_of(model::architectures(), [&](const model::Architecture& a) {
      return std::ranges::find(a.keys, key, &model::KeyRow::key) != a.keys.end();
    });
  };
  for (const auto& [key, value] : outer.items()) {
    const bool in_text = is_given(text, key);
    if (key == "quantization_config" && !value.is_null() && !value.empty())
      mistakes.add("quantization_config: expected none: quantized weights are not supported");
    else if (holds(sizes, key) && !value.is_null() && in_text && text[key] != value)
      mistakes.add(fmt::format("{} = {} and {}{} = {} differ; get an intact copy", key, io::shown(value), part.where,
                               key, io::shown(text[key])));
    else if (value.is_null() || key == "text_config" || key == "model_type" || key == "architectures" ||
             holds(of_pictures, key) || holds(of_both, key) || family_reads(key) || in_text || multimodal.flat)
      continue;
    else
      part.unread.push_back(fmt::format("{} = {}", key, io::shown(value)));
  }
}

}  // namespace

TextPart text_part(const json& outer, const Multimodal& multimodal, Mistakes& mistakes) {
  TextPart part;
  const bool inner = is_given(outer, "text_config");
  if (inner && !outer["text_config"].is_object()) {
    mistakes.add("text_config is not a table");
    return part;
  }
  if (!inner && !multimodal.flat) {
    mistakes.add(fmt::format("text_config is missing, which model_type = \"{}\" has", multimodal.model_type));
    return part;
  }
  const json* classes = is_given(outer, "architectures") ? &outer["architectures"] : nullptr;
  if (classes != nullptr && !(classes->is_array() && holds(*classes, multimodal.class_name)))
    mistakes.add(fmt::format("architectures = {}; expected [\"{}\"]", classes->dump(), multimodal.class_name));
  json text = inner ? outer["text_config"] : outer;
  if (inner) part.where = "text_config.";
  const TextType* type = type_of(text, multimodal, mistakes);
  if (type == nullptr) return part;
  check_outer(outer, inner ? text : json::object(), multimodal, part, mistakes);
  const bool ties = tied(outer, text, multimodal, part, mistakes);
  text["tie_word_embeddings"] = ties;
  for (const std::string_view key : type->unread)
    if (const auto found = text.find(key); found != text.end()) {
      const bool off = found->is_null() || *found == false || *found == 0;
      if (key == "use_sliding_window" && !off)
        mistakes.add(fmt::format("{}{} = {}; expected none: its class has no windows", part.where, key, found->dump()));
      text.erase(found);
    }
  for (const std::string_view key : of_pictures)
    if (!inner && key != "initializer_range") text.erase(std::string(key));
  text.erase("architectures");
  if (type->mrope) forget_sections(text);
  fill_in(text, *type);
  for (const std::string_view key : {"bos_token_id", "eos_token_id"})  // where the outer table has them, they count
    if (inner && is_given(outer, key)) text[std::string(key)] = outer[std::string(key)];
  part.config = std::move(text);
  return part;
}

}  // namespace trireme::huggingface
