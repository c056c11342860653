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

/// Bound that toml++ lacks, unlike that of nested values: each part is a level of tables that call themselves at their
/// end.
constexpr int most_parts = 8;

bool in_bare_key(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
}

/// End of the quoted text at `begin`, at most that of its line.
std::size_t end_of_quoted(std::string_view text, std::size_t begin) {
  const char quote = text[begin];
  std::size_t at = begin + 1;
  while (at < text.size() && text[at] != quote && text[at] != '\n') at += quote == '"' && text[at] == '\\' ? 2 : 1;
  return std::min(at + 1, text.size());
}

/// `text` as one TOML value; nothing when it is none.
std::optional<Value> toml_value(const std::string& text, const std::string& source, std::string& problem) {
  try {
    if (has_endless_key(text)) {
      problem = "a key has too many parts";
      return std::nullopt;
    }
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

bool has_endless_key(std::string_view toml) {
  int parts = 0;
  bool dotted = false;
  for (std::size_t at = 0; at < toml.size();) {
    const char c = toml[at];
    if (c == ' ' || c == '\t') {
      ++at;
    } else if (c == '#') {
      at = std::min(toml.find('\n', at), toml.size());
    } else if (c == '.') {
      dotted = true;
      ++at;
    } else if (c == '"' || c == '\'' || in_bare_key(c)) {
      parts = dotted ? parts + 1 : 1;
      dotted = false;
      if (parts > most_parts) return true;
      const std::size_t bare =
          std::find_if_not(toml.begin() + static_cast<std::ptrdiff_t>(at), toml.end(), in_bare_key) - toml.begin();
      at = in_bare_key(c) ? bare : end_of_quoted(toml, at);
    } else {
      parts = 0;
      dotted = false;
      ++at;
    }
  }
  return false;
}

Fields read_toml(std::string_view text, const std::string& name) {
  if (has_endless_key(text)) throw ConfigError(fmt::format("{}: not valid TOML: a key has too many parts", name));
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
