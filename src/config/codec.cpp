// SPDX-License-Identifier: Apache-2.0
#include "trireme/config/codec.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>

namespace trireme::config {

namespace {

template <class T>
Expected read_integer(const Value& value, T& target, const Limits& limits) {
  const auto* number = std::get_if<std::int64_t>(&value.data);
  const bool fits = number != nullptr && (std::is_signed_v<T> || *number >= 0);
  // The double nearest to 2^53 + 1 is 2^53.
  const bool beyond = fits && limits.max < 0x1p63 && *number > static_cast<std::int64_t>(limits.max);
  if (!fits || beyond || !limits.allow(static_cast<double>(*number))) return "an integer" + limits.text();
  target = static_cast<T>(*number);
  return std::nullopt;
}

/// `text` with `${VAR}` replaced, or the mistake in it.
Expected expand_variables(const std::string& text, std::string& expanded) {
  expanded.clear();
  for (std::size_t i = 0; i < text.size();) {
    if (text.compare(i, 3, "$${") == 0) {
      expanded += "${";
      i += 3;
    } else if (text.compare(i, 2, "${") == 0) {
      const auto end = text.find('}', i);
      if (end == std::string::npos) return "a path whose ${VARIABLE} is closed by }";
      const std::string name = text.substr(i + 2, end - i - 2);
      const char* variable = std::getenv(name.c_str());
      if (variable == nullptr)
        return fmt::format("a path whose variables are set in the environment: {} is not", quoted(name));
      expanded += variable;
      i = end + 1;
    } else {
      expanded += text[i++];
    }
  }
  return std::nullopt;
}

bool has_control_characters(const std::string& text) {
  return std::any_of(text.begin(), text.end(), [](char c) {
    const auto code = static_cast<unsigned char>(c);
    return code < 0x20 || code == 0x7F;
  });
}

template <class T>
std::string print_list(const std::vector<T>& items) {
  std::vector<std::string> texts;
  for (const T& item : items) texts.push_back(print(item).value());
  return "[" + join(texts, ", ") + "]";
}

}  // namespace

bool Limits::allow(double value) const {
  if (!std::isfinite(value)) return false;
  return (min_excluded ? value > min : value >= min) && (max_excluded ? value < max : value <= max);
}

std::string Limits::text() const {
  if (std::isfinite(min) && std::isfinite(max) && !min_excluded && !max_excluded)
    return fmt::format(", from {} to {}", min, max);
  std::string text;
  if (std::isfinite(min)) text += fmt::format(", {} {}", min_excluded ? "above" : "at least", min);
  if (std::isfinite(max)) text += fmt::format(", {} {}", max_excluded ? "below" : "at most", max);
  return text;
}

Expected read(const Value& value, bool& target) {
  const auto* flag = std::get_if<bool>(&value.data);
  if (flag == nullptr) return "true or false";
  target = *flag;
  return std::nullopt;
}

Expected read(const Value& value, std::int64_t& target, const Limits& limits) {
  return read_integer(value, target, limits);
}

Expected read(const Value& value, std::uint64_t& target, const Limits& limits) {
  return read_integer(value, target, limits);
}

Expected read(const Value& value, double& target, const Limits& limits) {
  double number = std::numeric_limits<double>::quiet_NaN();
  if (const auto* floating = std::get_if<double>(&value.data)) number = *floating;
  if (const auto* integer = std::get_if<std::int64_t>(&value.data)) number = static_cast<double>(*integer);
  if (!limits.allow(number)) return "a finite number" + limits.text();
  target = number;
  return std::nullopt;
}

Expected read(const Value& value, Bytes& target, const Limits& limits) {
  Bytes bytes{-1};
  if (const auto* integer = std::get_if<std::int64_t>(&value.data)) bytes.value = *integer;
  if (const auto* text = std::get_if<std::string>(&value.data)) {
    try {
      bytes = parse_bytes(*text);
    } catch (const ConfigError&) {
      bytes.value = -1;
    }
  }
  if (bytes.value < 0 || !limits.allow(static_cast<double>(bytes.value)))
    return "bytes as an integer or as in \"40GiB\"" + limits.text();
  target = bytes;
  return std::nullopt;
}

Expected read(const Value& value, std::vector<std::int64_t>& target, const Limits& limits) {
  const std::string expected = "a list of integers" + limits.text();
  const auto* list = std::get_if<List>(&value.data);
  if (list == nullptr) return expected;
  std::vector<std::int64_t> numbers(list->size());
  for (std::size_t i = 0; i < list->size(); ++i)
    if (read((*list)[i], numbers[i], limits))
      return expected + fmt::format(" (element {} is {})", i, describe((*list)[i]));
  target = std::move(numbers);
  return std::nullopt;
}

Expected read(const Value& value, std::string& target) {
  const auto* text = std::get_if<std::string>(&value.data);
  if (text == nullptr || has_control_characters(*text)) return "a string without control characters";
  target = *text;
  return std::nullopt;
}

Expected read(const Value& value, std::vector<std::string>& target) {
  const auto* list = std::get_if<List>(&value.data);
  if (list == nullptr) return "a list of strings";
  std::vector<std::string> texts(list->size());
  for (std::size_t i = 0; i < list->size(); ++i)
    if (read((*list)[i], texts[i])) return fmt::format("a list of strings (element {} is {})", i, describe((*list)[i]));
  target = std::move(texts);
  return std::nullopt;
}

Expected read_path(const Value& value, std::string& target) {
  std::string text;
  if (read(value, text)) return "a path: a string without control characters";
  return expand_variables(text, target);
}

Printed print(bool value) { return value ? "true" : "false"; }

Printed print(std::int64_t value) { return fmt::format("{}", value); }

Printed print(std::uint64_t value) { return fmt::format("{}", value); }

Printed print(double value) { return describe({.data = value, .place = {}}); }  // the shortest that reads back the same

Printed print(Bytes value) { return fmt::format("{}", value.value); }

Printed print(const std::vector<std::int64_t>& value) { return print_list(value); }

Printed print(const std::string& value) { return quoted(value); }

Printed print(const std::vector<std::string>& value) { return print_list(value); }

Printed print_path(const std::string& value) {
  if (value.empty()) return std::nullopt;
  std::string text;
  for (std::size_t i = 0; i < value.size(); ++i) {
    if (value.compare(i, 2, "${") == 0) text += '$';
    text += value[i];
  }
  return quoted(text);
}

}  // namespace trireme::config
