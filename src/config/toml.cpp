// SPDX-License-Identifier: Apache-2.0
#include "config/toml.hpp"

#include <fmt/core.h>
#include <toml++/toml.h>

#include <algorithm>
#include <optional>

#include "trireme/base/error.hpp"
#include "trireme/base/text.hpp"

namespace trireme::config {

namespace {

Value convert(const toml::node& node, const std::string& name);

Fields convert_fields(const toml::table& table, const std::string& name) {
  Fields fields;
  for (const auto& [key, node] : table) fields.push_back({std::string(key.str()), convert(node, name)});
  // toml++ sorts by key; a person reads from the top.
  std::stable_sort(fields.begin(), fields.end(),
                   [](const Field& a, const Field& b) { return a.value.place.line < b.value.place.line; });
  return fields;
}

Value convert(const toml::node& node, const std::string& name) {
  Value value{.data = DateOrTime{}, .place = {.source = name, .line = node.source().begin.line}};
  if (const auto* boolean = node.as_boolean()) value.data = boolean->get();
  if (const auto* integer = node.as_integer()) value.data = integer->get();
  if (const auto* floating = node.as_floating_point()) value.data = floating->get();
  if (const auto* text = node.as_string()) value.data = text->get();
  if (const auto* table = node.as_table()) value.data = convert_fields(*table, name);
  if (const auto* array = node.as_array()) {
    List list;
    for (const toml::node& element : *array) list.push_back(convert(element, name));
    value.data = std::move(list);
  }
  return value;
}

/// `text` as one TOML value; nothing when it is none.
std::optional<Value> toml_value(const std::string& text, const std::string& source, std::string& problem) {
  try {
    const toml::table table = toml::parse("value = " + text);
    if (table.size() != 1) return std::nullopt;
    Value value = convert(*table.get("value"), source);
    return value;
  } catch (const toml::parse_error& error) {
    problem = error.description();
    return std::nullopt;
  }
}

/// An override's values have no line.
void forget_lines(Value& value) {
  value.place.line = 0;
  if (auto* list = std::get_if<List>(&value.data))
    for (Value& element : *list) forget_lines(element);
  if (auto* fields = std::get_if<Fields>(&value.data))
    for (Field& field : *fields) forget_lines(field.value);
}

Value override_value(const std::string& raw, const std::string& source) {
  std::string problem;
  std::optional<Value> value = toml_value(raw, source, problem);
  const bool structured = !raw.empty() && std::string_view("[{\"'").find(raw.front()) != std::string_view::npos;
  if (!value && structured) throw ConfigError(fmt::format("{}: not a TOML value: {}", source, problem));
  if (!value || std::holds_alternative<DateOrTime>(value->data))
    return {.data = raw, .place = {.source = source, .line = 0}};
  forget_lines(*value);
  return *value;
}

}  // namespace

Fields read_toml(std::string_view text, const std::string& name) {
  try {
    return convert_fields(toml::parse(text), name);
  } catch (const toml::parse_error& error) {
    throw ConfigError(fmt::format("{}:{}: not valid TOML: {}", name, error.source().begin.line, error.description()));
  }
}

Override read_override(const std::string& text) {
  const std::string source = "--set " + text.substr(0, 100);
  const bool printable =
      std::none_of(text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) < 0x20; });
  if (!printable) throw ConfigError(quoted(source) + ": expected one line without control characters");
  const auto equals = text.find('=');
  const std::string path(trim(std::string_view(text).substr(0, equals)));
  const auto dot = path.find('.');
  if (equals == std::string::npos || dot == std::string::npos || dot == 0 || dot + 1 == path.size())
    throw ConfigError(source + ": expected section.key=value, as in --set train.steps=100");
  const std::string raw(trim(std::string_view(text).substr(equals + 1)));
  return {
      .section = path.substr(0, dot), .key = path.substr(dot + 1), .value = override_value(raw, source), .raw = raw};
}

}  // namespace trireme::config
