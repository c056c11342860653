// SPDX-License-Identifier: Apache-2.0
#include "huggingface/windows.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>

#include "trireme/config/rules.hpp"

namespace trireme::huggingface {

namespace {

using model::Windows;
using nlohmann::json;
using Types = std::vector<std::string>;

/// layer_types; nothing when there are none, or a mistake.
std::optional<Types> listed_types(const JsonObject& config, std::int64_t layers) {
  const json* list = config.find("layer_types");
  if (list == nullptr) return std::nullopt;
  const auto is_known = [](const json& type) {
    return type == config::full_attention || type == config::sliding_attention;
  };
  if (list->is_array() && static_cast<std::int64_t>(list->size()) == layers &&
      std::all_of(list->begin(), list->end(), is_known))
    return list->get<Types>();
  config.unexpected("layer_types", fmt::format("full_attention or sliding_attention for each of {} layers", layers));
  return std::nullopt;
}

/// Layers from max_window_layers on have the window; in an absent list of the others all, or all except every n-th.
Types unlisted_types(const JsonObject& config, const model::Architecture& a, std::int64_t layers) {
  const std::int64_t full =
      a.max_window_layers_absent > 0 ? config.integer("max_window_layers", 0).value_or(a.max_window_layers_absent) : 0;
  Types types(static_cast<std::size_t>(layers), config::sliding_attention);
  std::int64_t every = a.full_every;
  if (!a.full_every_key.empty()) every = config.integer(std::string(a.full_every_key), 1).value_or(every);
  for (std::int64_t layer = a.full_first ? 1 : every; every > 0 && layer <= layers; layer += every)
    types[static_cast<std::size_t>(layer - 1)] = config::full_attention;
  std::fill_n(types.begin(), std::min(full, layers), config::full_attention);
  return types;
}

}  // namespace

void read_windows(const JsonObject& config, const model::Architecture& a, config::Model& model) {
  if (a.windows == Windows::none || model.layers > config::largest_count) return;
  const bool on = a.windows != Windows::switched || config.flag("use_sliding_window").value_or(false);
  const std::int64_t absent = config.is_null("sliding_window") ? 0 : a.window_absent;
  const std::int64_t window = on ? config.integer("sliding_window", 1).value_or(absent) : 0;
  if (a.windows == Windows::all) {
    if (config.has("layer_types"))
      config.unexpected("layer_types", "none: transformers ignores it for this model_type");
    model.sliding_window = window;
    return;
  }
  if (!a.full_every_key.empty()) (void)config.find(std::string(a.full_every_key));  // layer_types overrides it
  const std::optional<Types> listed = listed_types(config, model.layers);
  if (!listed && window == 0) return;
  if (!listed && a.lists_windows && !config.has("layer_types"))
    config.unexpected("layer_types", "which layers have the window of use_sliding_window = true");
  model.layer_types = listed ? *listed : unlisted_types(config, a, model.layers);
  model.sliding_window = window;
  const Types& types = model.layer_types;
  if (window == 0 && std::find(types.begin(), types.end(), config::sliding_attention) != types.end())
    config.unexpected("layer_types", "full_attention only, since there is no sliding_window");
  const bool slides = std::find(types.begin(), types.end(), config::sliding_attention) != types.end();
  if (a.turns_windows_only && window > 0 && !slides)
    config.unexpected("sliding_window", "null, since no layer has it: a model without RoPE is not supported");
  model = model::in_shortest_form(std::move(model));
}

void read_no_rope_layers(const JsonObject& config, config::Model& model) {
  constexpr std::int64_t interval_absent = 4;
  model.no_rope_interval = config.integer("no_rope_layer_interval", 1).value_or(interval_absent);
  const json* list = config.find("no_rope_layers");
  if (list == nullptr) return;
  const bool complete = list->is_array() && static_cast<std::int64_t>(list->size()) == model.layers;
  const auto first = complete ? std::find(list->begin(), list->end(), 0) : json::const_iterator{};
  model.no_rope_interval = !complete || first == list->end() ? 0 : first - list->begin() + 1;
  bool fits = complete;
  for (std::int64_t layer = 0; fits && layer < model.layers; ++layer)
    fits = (*list)[static_cast<std::size_t>(layer)] == (model::rotates(model, layer) ? 1 : 0);
  if (!fits)
    config.unexpected("no_rope_layers",
                      fmt::format("{} numbers, 0 for every n-th layer and 1 for the others", model.layers));
}

void read_mlp_types(const JsonObject& config, config::Model& model) {
  model.dense_layers = 1;
  if (const json* list = config.find("mlp_layer_types")) {
    model.dense_layers = 0;
    bool fits = list->is_array() && static_cast<std::int64_t>(list->size()) == model.layers;
    for (std::int64_t layer = 0; fits && layer < model.layers; ++layer) {
      const json& type = (*list)[static_cast<std::size_t>(layer)];
      fits = type == "sparse" || (type == "dense" && model.dense_layers == layer);
      if (type == "dense") ++model.dense_layers;
    }
    if (!fits) config.unexpected("mlp_layer_types", "\"dense\" for the first layers, then \"sparse\", one a layer");
  }
  if (config.integer("first_k_dense_replace", 0).value_or(model.dense_layers) != model.dense_layers)
    config.unexpected("first_k_dense_replace",
                      fmt::format("{}, the dense layers of mlp_layer_types (1 if it is absent)", model.dense_layers));
}

void read_dense_layers(const JsonObject& config, config::Model& model) {
  if (config.integer("decoder_sparse_step", 1).value_or(1) != 1)
    config.unexpected("decoder_sparse_step", "1: experts in every layer that mlp_only_layers does not list");
  const json* list = config.find("mlp_only_layers");
  if (list == nullptr) return;
  model.dense_layers = list->is_array() ? static_cast<std::int64_t>(list->size()) : 0;
  bool fits = list->is_array() && model.dense_layers <= model.layers;
  for (std::int64_t layer = 0; fits && layer < model.dense_layers; ++layer)
    fits = (*list)[static_cast<std::size_t>(layer)] == layer;
  if (!fits) config.unexpected("mlp_only_layers", "the first layers, counted from 0, or none");
}

void write_windows(const model::Architecture& a, const config::Model& given, nlohmann::ordered_json& table) {
  const config::Model model = model::in_shortest_form(given);
  if (a.skips_rope) {
    std::vector<int> list;
    for (std::int64_t layer = 0; layer < model.layers; ++layer) list.push_back(model::rotates(model, layer) ? 1 : 0);
    table["no_rope_layers"] = list;
  }
  if (a.lists_dense_layers) {
    std::vector<std::int64_t> list(static_cast<std::size_t>(model.dense_layers));
    std::iota(list.begin(), list.end(), std::int64_t{0});
    table["mlp_only_layers"] = list;
    table["decoder_sparse_step"] = 1;
  }
  if (a.lists_mlp_types) {
    Types types(static_cast<std::size_t>(model.layers), "sparse");
    std::fill_n(types.begin(), model.dense_layers, "dense");
    table["mlp_layer_types"] = types;
    table["first_k_dense_replace"] = model.dense_layers;  // read by programs without mlp_layer_types
  }
  if (a.windows == Windows::none) return;
  table["sliding_window"] = nullptr;
  if (model.sliding_window > 0)
    table["sliding_window"] = model.sliding_window;
  else if (a.refuses_null)
    table["sliding_window"] = a.window_absent;
  if (a.windows == Windows::all) return;
  Types types;
  for (std::int64_t layer = 0; layer < model.layers; ++layer)
    types.push_back(model::window_of(model, layer) > 0 ? config::sliding_attention : config::full_attention);
  table["layer_types"] = types;
  if (a.windows != Windows::switched) return;
  table["use_sliding_window"] = model.sliding_window > 0;
  // Read by programs without layer_types.
  const auto first = std::find(types.begin(), types.end(), config::sliding_attention);
  table["max_window_layers"] = first - types.begin();
}

}  // namespace trireme::huggingface
