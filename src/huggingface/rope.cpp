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

/// A table with its position.
struct TablePlace {
  const JsonObject& config;
  const json& values;
  const JsonObject& table;
  const Architecture& a;
};

/// Original context length, as transformers 5 reads it: of config.json's top level, else of the table, else
/// max_position_embeddings. Tables by type of layer ignore the top level. A value in the table that the top level
/// overrides stays unread.
std::int64_t original_length(const TablePlace& at) {
  const std::string key = "original_max_position_embeddings";
  const bool given = at.values.contains(key) && !at.values[key].is_null();
  std::optional<std::int64_t> beside;
  if (!at.a.decoder.local_rope) beside = at.config.integer(key, 1);
  if (!beside && at.a.original_length_absent > 0) beside = at.a.original_length_absent;
  if (beside) {
    if (!given || at.values[key] == *beside) (void)at.table.find(key);
    return *beside;
  }
  if (given) return at.table.required_integer(key);
  (void)at.table.find(key);
  return at.config.required_integer("max_position_embeddings");
}

/// max_position_embeddings over the original length: the factor where the table has none.
double implied_factor(const TablePlace& at, std::int64_t original) {
  return static_cast<double>(at.config.required_integer("max_position_embeddings")) /
         static_cast<double>(std::max<std::int64_t>(1, original));
}

config::RopeScaling longrope(const TablePlace& at) {
  config::RopeScaling scaling{.type = config::RopeType::longrope,
                              .original_max_position_embeddings = original_length(at),
                              .attention_factor = at.table.positive("attention_factor").value_or(0),
                              .short_factor = factors(at.table, "short_factor"),
                              .long_factor = factors(at.table, "long_factor")};
  const std::optional<double> factor = at.table.positive("factor");
  scaling.factor = std::max(1.0, factor ? *factor : implied_factor(at, scaling.original_max_position_embeddings));
  return scaling;
}

/// mscale: of a factor, as both of yarn's keys of that name count it.
double mscale(double factor, double times) { return factor <= 1 ? 1 : 0.1 * times * std::log(factor) + 1; }

config::RopeScaling yarn(const TablePlace& at) {
  const auto& [config, values, table, a] = at;
  const config::RopeScaling absent;
  const std::int64_t original = original_length(at);
  config::RopeScaling scaling{
      .type = config::RopeType::yarn,
      .factor = table.is_null("factor") ? implied_factor(at, original) : table.required_positive("factor"),
      .original_max_position_embeddings = original,
      .attention_factor = table.positive("attention_factor").value_or(0),
      .beta_fast = table.positive("beta_fast").value_or(absent.beta_fast),
      .beta_slow = table.positive("beta_slow").value_or(absent.beta_slow),
      .truncate = table.flag("truncate").value_or(true)};
  const std::optional<double> of_head = table.at_least_zero("mscale"), of_all = table.at_least_zero("mscale_all_dim");
  if (scaling.attention_factor == 0 && of_head.value_or(0) > 0 && of_all.value_or(0) > 0)
    scaling.attention_factor = mscale(scaling.factor, *of_head) / mscale(scaling.factor, *of_all);
  if (!std::isfinite(scaling.attention_factor)) table.unexpected("mscale", "a number that fp64 can multiply");
  if (a.decoder.latent) scaling.mscale_all_dim = of_all.value_or(0);
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
  std::string type = rope_type(table);
  if (a.scales_queries) (void)table.find("max_position_embeddings");  // has no effect
  const bool longrope_only = a.original_length_absent > 0;
  if (longrope_only && (type == "su" || type == "yarn")) type = "longrope";  // its names in Phi-3's first files
  const TablePlace at{.config = config, .values = value, .table = table, .a = a};
  if (longrope_only && type != "default" && type != "longrope") {
    table.unexpected(table.has("rope_type") ? "rope_type" : "type", "default or longrope, which this model_type has");
  } else if (a.scales_queries && type != "yarn") {
    table.unexpected(table.has("rope_type") ? "rope_type" : "type", "yarn, whose keys scale this model_type's queries");
  } else if (type == "llama3") {
    read.scaling = config::RopeScaling{.factor = table.required_positive("factor"),
                                       .low_freq_factor = table.required_positive("low_freq_factor"),
                                       .high_freq_factor = table.required_positive("high_freq_factor"),
                                       .original_max_position_embeddings = original_length(at)};
  } else if (type == "linear") {
    read.scaling = config::RopeScaling{.type = config::RopeType::linear, .factor = table.required_positive("factor")};
  } else if (type == "dynamic") {
    read.scaling =
        config::RopeScaling{.type = config::RopeType::dynamic,
                            .factor = table.required_positive("factor"),
                            .original_max_position_embeddings = config.required_integer("max_position_embeddings")};
  } else if (type == "yarn") {
    read.scaling = yarn(at);
  } else if (type == "longrope") {
    read.scaling = longrope(at);
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
