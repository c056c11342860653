// SPDX-License-Identifier: Apache-2.0
#include "huggingface/rope.hpp"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

namespace trireme::huggingface {

namespace {

using nlohmann::json;

/// One table: rope_scaling or rope_parameters.
struct Table {
  std::optional<double> theta;
  std::optional<config::RopeScaling> scaling;
  std::vector<std::string> unread;
};

std::string rope_type(const JsonObject& table) {
  const std::optional<std::string> now = table.text("rope_type");
  const std::optional<std::string> before = table.text("type");  // the key's first name
  if (now && before && *now != *before) table.unexpected("type", fmt::format("the same as rope_type = \"{}\"", *now));
  return now.value_or(before.value_or("default"));
}

Table read_table(const json& value, const std::string& name, Mistakes& mistakes) {
  if (!value.is_object()) {
    mistakes.add(fmt::format("{} is not a table", name));
    return {};
  }
  const JsonObject table(value, name + ".", mistakes);
  for (const auto& [key, entry] : value.items()) {
    if (entry.is_object()) table.unexpected(key, "one set of RoPE parameters; a set per type of layer is not honoured");
  }
  if (table.has("partial_rotary_factor") && table.positive("partial_rotary_factor") != 1.0) {
    table.unexpected("partial_rotary_factor", "1: partial rotation is not honoured");
  }
  Table read{.theta = table.positive("rope_theta"), .scaling = {}, .unread = {}};
  const std::string type = rope_type(table);
  if (type == "llama3") {
    read.scaling = config::RopeScaling{
        .factor = table.required_positive("factor"),
        .low_freq_factor = table.required_positive("low_freq_factor"),
        .high_freq_factor = table.required_positive("high_freq_factor"),
        .original_max_position_embeddings = table.required_integer("original_max_position_embeddings")};
  } else if (type == "linear") {
    read.scaling = config::RopeScaling{.type = config::RopeType::linear, .factor = table.required_positive("factor")};
  } else if (type == "yarn") {
    for (const char* key : {"mscale", "mscale_all_dim"})
      if (table.has(key)) table.unexpected(key, "none: it is not honoured");
    read.scaling = config::RopeScaling{
        .type = config::RopeType::yarn,
        .factor = table.required_positive("factor"),
        .original_max_position_embeddings = table.required_integer("original_max_position_embeddings"),
        .attention_factor = table.positive("attention_factor").value_or(0),
        .beta_fast = table.positive("beta_fast").value_or(config::RopeScaling{}.beta_fast),
        .beta_slow = table.positive("beta_slow").value_or(config::RopeScaling{}.beta_slow),
        .truncate = table.flag("truncate").value_or(true)};
  } else if (type != "default") {
    table.unexpected(table.has("rope_type") ? "rope_type" : "type",
                     "default, linear, llama3 or yarn; other types are not honoured");
  }
  read.unread = table.unread();
  return read;
}

}  // namespace

Rope read_rope(const JsonObject& config, double theta_absent, Mistakes& mistakes) {
  const std::optional<double> theta = config.positive("rope_theta");
  const json* old_table = config.find("rope_scaling");
  const json* new_table = config.find("rope_parameters");
  const Table old_values = old_table != nullptr ? read_table(*old_table, "rope_scaling", mistakes) : Table{};
  if (new_table == nullptr) {
    return {.theta = theta.value_or(old_values.theta.value_or(theta_absent)),
            .scaling = old_values.scaling,
            .unread = old_values.unread};
  }
  const Table values = read_table(*new_table, "rope_parameters", mistakes);
  if (theta && values.theta && *theta != *values.theta) {
    mistakes.add(
        fmt::format("rope_theta = {} (transformers 4) and rope_parameters.rope_theta = {} (transformers 5) differ; "
                    "keep the one the weights were trained with",
                    *theta, *values.theta));
  }
  if (old_table != nullptr && old_values.scaling != values.scaling) {
    mistakes.add(
        "rope_scaling (transformers 4) and rope_parameters (transformers 5) differ; keep the one the weights were "
        "trained with");
  }
  std::vector<std::string> unread = old_values.unread;
  unread.insert(unread.end(), values.unread.begin(), values.unread.end());
  return {.theta = values.theta.value_or(theta.value_or(theta_absent)),
          .scaling = values.scaling,
          .unread = std::move(unread)};
}

}  // namespace trireme::huggingface
