// SPDX-License-Identifier: Apache-2.0
#include "cli/init/source_fields.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>
#include <variant>

#include "base/io/json.hpp"
#include "cli/init/yaml_blocks.hpp"
#include "config/toml.hpp"
#include "trireme/base/io/file.hpp"
#include "trireme/base/text.hpp"

namespace trireme::cli {
namespace {

using Json = nlohmann::json;

const Json none;

Json json_of(const config::Value& value);

Json json_of(const config::Fields& fields) {
  Json object = Json::object();
  for (const config::Field& field : fields) object[field.key] = json_of(field.value);
  return object;
}

struct ToJson {
  const config::Value& value;
  Json operator()(const config::List& list) const {
    Json array = Json::array();
    for (const config::Value& item : list) array.push_back(json_of(item));
    return array;
  }
  Json operator()(const config::Fields& fields) const { return json_of(fields); }
  Json operator()(const config::DateOrTime& /*date*/) const { return config::describe(value); }
  template <class T>
  Json operator()(const T& scalar) const {
    return scalar;
  }
};

Json json_of(const config::Value& value) { return std::visit(ToJson{value}, value.data); }

}  // namespace

SourceFields::SourceFields(std::string file, const Json& fields) : file_(std::move(file)) {
  for (const auto& [key, value] : fields.items()) flatten(key, value);
}

void SourceFields::flatten(const std::string& name, const Json& value) {
  if (!value.is_object() || value.empty()) {
    fields_[name] = value;
    return;
  }
  for (const auto& [key, inner] : value.items()) flatten(name + "." + key, inner);
}

const Json& SourceFields::take(Names names) {
  const Json* found = &none;
  for (const std::string_view name : names) {
    const auto field = fields_.find(name);
    if (field == fields_.end()) continue;
    read_[field->first] = true;
    if (found->is_null()) found = &field->second;
  }
  return *found;
}

void SourceFields::refuse_type(Names names, std::string_view wanted) {
  const std::string_view name = present(names);
  refuse(name, fmt::format("{} is not {}", io::shown(fields_.find(name)->second), wanted));
}

std::int64_t SourceFields::integer(Names names, std::int64_t fallback) {
  const Json& value = take(names);
  if (value.is_null()) return fallback;
  if (value.is_number_integer()) return value.get<std::int64_t>();
  refuse_type(names, "an integer");
  return fallback;
}

double SourceFields::number(Names names, double fallback) {
  const Json& value = take(names);
  if (value.is_null()) return fallback;
  if (value.is_number() && std::isfinite(value.get<double>())) return value.get<double>();
  refuse_type(names, "a number");
  return fallback;
}

bool SourceFields::flag(Names names, bool fallback) {
  const Json& value = take(names);
  if (value.is_null()) return fallback;
  if (value.is_boolean()) return value.get<bool>();
  refuse_type(names, "true or false");
  return fallback;
}

std::string SourceFields::text(Names names, std::string_view fallback) {
  const Json& value = take(names);
  if (value.is_null()) return std::string(fallback);
  if (value.is_string()) return value.get<std::string>();
  refuse_type(names, "a text");
  return std::string(fallback);
}

std::vector<std::string> SourceFields::texts(Names names) {
  const Json& value = take(names);
  std::vector<std::string> all;
  if (value.is_null()) return all;
  for (const Json& item : value.is_array() ? value : Json::array({value})) {
    if (!item.is_string()) {
      refuse_type(names, "a list of texts");
      return {};
    }
    if (!item.get<std::string>().empty()) all.push_back(item.get<std::string>());
  }
  return all;
}

bool SourceFields::has(std::string_view name) const { return fields_.contains(name); }

std::string_view SourceFields::present(Names names) const {
  for (const std::string_view name : names)
    if (const auto field = fields_.find(name); field != fields_.end() && !field->second.is_null()) return name;
  return *names.begin();
}

void SourceFields::refuse(std::string_view name, std::string_view problem) {
  mistakes_.add(fmt::format("{}: {}", name, problem));
}

void SourceFields::raise() const { mistakes_.raise(file_ + ":"); }

std::vector<std::string> SourceFields::unread(std::span<const WithoutCounterpart> known) const {
  constexpr std::size_t each = 12;  // fields of one pattern that are listed one a line
  std::vector<std::string> lines;
  const auto line = [](const std::string& name, const Json& value, std::string_view reason) {
    return fmt::format("{} = {}: {}", name, io::shown(value), reason);
  };
  std::map<std::string_view, std::vector<std::string>> by_pattern;
  for (const auto& [name, value] : fields_) {
    if (read_.contains(name)) continue;
    const auto* const rule = std::ranges::find_if(known.data(), known.data() + known.size(),
                                                  [&](const auto& k) { return glob_match(k.pattern, name); });
    if (rule == known.data() + known.size())
      lines.push_back(line(name, value, "not known here"));
    else
      by_pattern[rule->pattern].push_back(line(name, value, rule->reason));
  }
  for (const WithoutCounterpart& rule : known) {
    const auto found = by_pattern.find(rule.pattern);
    if (found == by_pattern.end()) continue;
    if (found->second.size() <= each)
      lines.insert(lines.end(), found->second.begin(), found->second.end());
    else
      lines.push_back(fmt::format("{} ({} fields): {}", rule.pattern, found->second.size(), rule.reason));
    by_pattern.erase(found);
  }
  return lines;
}

nlohmann::json read_source(const std::string& path) {
  constexpr std::int64_t most_bytes = 64 << 20;
  const std::string text = io::read_text(path, most_bytes);
  const std::string_view begin = trim(text);
  if (path.ends_with(".yaml") || path.ends_with(".yml")) return parse_yaml_blocks(text, path);
  if (!begin.starts_with('{')) return json_of(config::read_toml(text, path));
  try {
    return io::parse_json(path, text);
  } catch (const CheckpointError& error) {
    throw ConfigError(error.what());
  }
}

}  // namespace trireme::cli
