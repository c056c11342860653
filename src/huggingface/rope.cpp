// SPDX-License-Identifier: Apache-2.0
#include "huggingface/rope.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

namespace trireme::huggingface {

namespace {

using nlohmann::json;

using model::Architecture;

/// One table: rope_scaling or rope_parameters, or its part for a type of layer.
struct Table {
  std::optional<double> theta, partial;
  std::optional<config::RopeScaling> scaling;
  std::vector<std::string> unread;
};

std::string rope_type(const JsonObject& table) {
  const std::optional<std::string> now = table.text("rope_type");
  const std::optional<std::string> before = table.text("type");  // the key's first name
  if (now && before && *now != *before) table.unexpected("type", fmt::format("the same as rope_type = \"{}\"", *now));
  return now.value_or(before.value_or("default"));
}

std::vector<double> factors(const JsonObject& table, const std::string& key) {
  std::vector<double> list;
  const json* value = table.find(key);
  if (value != nullptr && value->is_array())
    for (const json& factor : *value)
      if (factor.is_number() && factor.get<double>() > 0 && std::isfinite(factor.get<double>()))
        list.push_back(factor.get<double>());
  if (value == nullptr)
    table.missing(key);
  else if (list.empty() || list.size() != value->size())
    table.unexpected(key, "a list of numbers above 0");
  return list;
}

/// The length of context before it was stretched: of some families beside the table, whatever that says.
std::int64_t original_length(const JsonObject& config, const JsonObject& table, const Architecture& a) {
  constexpr const char* key = "original_max_position_embeddings";
  if (a.original_length_absent == 0) return table.required_integer(key);
  (void)table.find(key);
  return config.integer(key, 2).value_or(a.original_length_absent);
}

config::RopeScaling longrope(const JsonObject& config, const JsonObject& table, const Architecture& a) {
  config::RopeScaling scaling{.type = config::RopeType::longrope,
                              .original_max_position_embeddings = original_length(config, table, a),
                              .attention_factor = table.positive("attention_factor").value_or(0),
                              .short_factor = factors(table, "short_factor"),
                              .long_factor = factors(table, "long_factor")};
  if (const std::optional<double> factor = table.positive("factor")) {
    scaling.factor = std::max(1.0, *factor);
  } else {
    const auto longest = static_cast<double>(config.required_integer("max_position_embeddings"));
    const auto original = static_cast<double>(std::max<std::int64_t>(1, scaling.original_max_position_embeddings));
    scaling.factor = std::max(1.0, longest / original);
  }
  return scaling;
}

/// mscale: of a factor, as both of yarn's keys of that name count it.
double mscale(double factor, double times) { return factor <= 1 ? 1 : 0.1 * times * std::log(factor) + 1; }

config::RopeScaling yarn(const JsonObject& table, const Architecture& a) {
  const config::RopeScaling absent;
  config::RopeScaling scaling{
      .type = config::RopeType::yarn,
      .factor = table.required_positive("factor"),
      .original_max_position_embeddings = table.required_integer("original_max_position_embeddings"),
      .attention_factor = table.positive("attention_factor").value_or(0),
      .beta_fast = table.positive("beta_fast").value_or(absent.beta_fast),
      .beta_slow = table.positive("beta_slow").value_or(absent.beta_slow),
      .truncate = table.flag("truncate").value_or(true)};
  const std::optional<double> of_head = table.at_least_zero("mscale"), of_all = table.at_least_zero("mscale_all_dim");
  if (scaling.attention_factor == 0 && of_head.value_or(0) > 0 && of_all.value_or(0) > 0)
    scaling.attention_factor = mscale(scaling.factor, *of_head) / mscale(scaling.factor, *of_all);
  if (!std::isfinite(scaling.attention_factor)) table.unexpected("mscale", "a number that fp64 can multiply");
  if (!a.scales_queries) return scaling;
  if (!table.has("llama_4_scaling_beta")) table.missing("llama_4_scaling_beta");
  scaling.llama_4_scaling_beta = table.at_least_zero("llama_4_scaling_beta").value_or(0);
  return scaling;
}

Table read_table(const json& value, const std::string& name, const JsonObject& config, const Architecture& a,
                 Mistakes& mistakes) {
  if (!value.is_object()) {
    mistakes.add(fmt::format("{} is not a table", config.named(name)));
    return {};
  }
  const JsonObject table(value, config.named(name) + ".", mistakes);
  for (const auto& [key, entry] : value.items()) {
    if (entry.is_object())
      table.unexpected(key, "one set of RoPE parameters; a set per type of layer is not supported");
  }
  Table read{.theta = table.positive("rope_theta"),
             .partial = table.positive("partial_rotary_factor"),
             .scaling = {},
             .unread = {}};
  if (read.partial.value_or(1) != 1 && !a.expresses(&config::Model::partial_rotary_factor))
    table.unexpected("partial_rotary_factor", "1: partial rotation is not supported");
  const std::string type = rope_type(table);
  if (a.scales_queries) (void)table.find("max_position_embeddings");  // has no effect
  const bool longrope_only = a.original_length_absent > 0;
  if (longrope_only && type != "default" && type != "longrope") {
    table.unexpected(table.has("rope_type") ? "rope_type" : "type", "default or longrope, which this model_type has");
  } else if (a.scales_queries && type != "yarn") {
    table.unexpected(table.has("rope_type") ? "rope_type" : "type", "yarn, whose keys scale this model_type's queries");
  } else if (type == "llama3") {
    read.scaling = config::RopeScaling{
        .factor = table.required_positive("factor"),
        .low_freq_factor = table.required_positive("low_freq_factor"),
        .high_freq_factor = table.required_positive("high_freq_factor"),
        .original_max_position_embeddings = table.required_integer("original_max_position_embeddings")};
  } else if (type == "linear") {
    read.scaling = config::RopeScaling{.type = config::RopeType::linear, .factor = table.required_positive("factor")};
  } else if (type == "dynamic") {
    read.scaling =
        config::RopeScaling{.type = config::RopeType::dynamic,
                            .factor = table.required_positive("factor"),
                            .original_max_position_embeddings = config.required_integer("max_position_embeddings")};
  } else if (type == "yarn") {
    read.scaling = yarn(table, a);
  } else if (type == "longrope") {
    read.scaling = longrope(config, table, a);
  } else if (type != "default") {
    table.unexpected(table.has("rope_type") ? "rope_type" : "type",
                     "default, linear, llama3, yarn, longrope or dynamic; other types are not supported");
  }
  read.unread = table.unread();
  return read;
}

/// RoPE of families whose layers with a window have their own: rope_parameters by type of layer in the dialect of
/// transformers 5, which reads nothing else then; the keys of 4 are for layers without a window.
Rope read_rope_by_type(const JsonObject& config, const Architecture& a, Mistakes& mistakes) {
  const std::optional<double> theta = config.positive("rope_theta");
  const json* old_table = config.find("rope_scaling");
  const Table old_values = old_table != nullptr ? read_table(*old_table, "rope_scaling", config, a, mistakes) : Table{};
  std::optional<double> local;
  if (!a.local_theta_key.empty()) local = config.positive(std::string(a.local_theta_key));
  Rope read{.theta = theta.value_or(old_values.theta.value_or(a.theta_absent)),
            .local_theta = local.value_or(a.local_theta_absent),
            .scaling = old_values.scaling,
            .unread = old_values.unread};
  const json* by_type = config.find("rope_parameters");
  if (by_type == nullptr) {
    if (a.local_theta_key.empty() && read.theta != a.local_theta_absent)
      mistakes.add(
          fmt::format("rope_theta = {}: without rope_parameters by type of layer transformers 4 turns layers with "
                      "a window by it and transformers 5 by {}; write rope_parameters",
                      read.theta, a.local_theta_absent));
    return read;
  }
  const auto part = [&](const char* type) {
    if (by_type->is_object() && by_type->contains(type))
      return read_table((*by_type)[type], fmt::format("rope_parameters.{}", type), config, a, mistakes);
    config.unexpected("rope_parameters", "a table for full_attention and one for sliding_attention");
    return Table{};
  };
  const Table full = part(config::full_attention), sliding = part(config::sliding_attention);
  if (sliding.scaling)
    config.unexpected("rope_parameters", "rope_type = \"default\" for sliding_attention: its scaling is not supported");
  if ((theta && full.theta && *theta != *full.theta) || (old_table != nullptr && old_values.scaling != full.scaling) ||
      (local && sliding.theta && *local != *sliding.theta))
    mistakes.add(fmt::format(
        "rope_theta, rope_scaling{}{} (transformers 4) and rope_parameters (transformers 5) differ; keep those the "
        "weights were trained with",
        local ? " or " : "", local ? a.local_theta_key : ""));
  read.theta = full.theta.value_or(read.theta);
  read.local_theta = sliding.theta.value_or(read.local_theta);
  read.scaling = full.scaling;
  for (const Table* table : {&full, &sliding})
    read.unread.insert(read.unread.end(), table->unread.begin(), table->unread.end());
  return read;
}

}  // namespace

Rope read_rope(const JsonObject& config, const Architecture& a, Mistakes& mistakes) {
  if (a.decoder.local_rope) return read_rope_by_type(config, a, mistakes);
  if (a.original_length_absent > 0) (void)config.find("original_max_position_embeddings");  // of longrope only
  const std::optional<double> theta = config.positive("rope_theta");
  const json* old_table = config.find("rope_scaling");
  const json* new_table = config.find("rope_parameters");
  const Table old_values = old_table != nullptr ? read_table(*old_table, "rope_scaling", config, a, mistakes) : Table{};
  if (a.rope_table_needed && new_table == nullptr && old_table == nullptr)
    config.unexpected("rope_parameters", fmt::format("a table: without one {} stretches RoPE", a.class_name));
  constexpr std::string_view outer = "rope_theta";
  const auto same = [&](std::string_view name, const std::optional<double>& one, std::string_view other_name,
                        const std::optional<double>& other) {
    if (one && other && *one != *other)
      mistakes.add(fmt::format("{0} = {1}{4} and {2} = {3}{5} differ; keep the one the weights were trained with", name,
                               *one, other_name, *other, name == outer ? " (transformers 4)" : "",
                               name == outer ? " (transformers 5)" : ""));
  };
  same(outer, theta, "rope_scaling.rope_theta", old_values.theta);
  if (new_table == nullptr) {
    return {.theta = theta.value_or(old_values.theta.value_or(a.theta_absent)),
            .partial = old_values.partial,
            .scaling = old_values.scaling,
            .unread = old_values.unread};
  }
  const Table values = read_table(*new_table, "rope_parameters", config, a, mistakes);
  same(outer, theta, "rope_parameters.rope_theta", values.theta);
  same("rope_scaling.rope_theta", old_values.theta, "rope_parameters.rope_theta", values.theta);
  if (old_table != nullptr && old_values.scaling != values.scaling) {
    mistakes.add(
        "rope_scaling (transformers 4) and rope_parameters (transformers 5) differ; keep the one the weights were "
        "trained with");
  }
  std::vector<std::string> unread = old_values.unread;
  unread.insert(unread.end(), values.unread.begin(), values.unread.end());
  return {.theta = values.theta.value_or(theta.value_or(a.theta_absent)),
          .partial = values.partial,
          .scaling = values.scaling,
          .unread = std::move(unread)};
}

}  // namespace trireme::huggingface
