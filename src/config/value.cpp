// SPDX-License-Identifier: Apache-2.0
#include "trireme/config/value.hpp"

#include <fmt/core.h>

namespace trireme::config {

namespace {

constexpr std::size_t longest_shown = 60;

/// The first bytes of `text` that fit, never half of a UTF-8 character.
std::string shortened(std::string_view text) {
  if (text.size() <= longest_shown) return std::string(text);
  std::size_t end = longest_shown;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0U) == 0x80U) --end;
  return std::string(text.substr(0, end)) + "...";
}

struct Describe {
  std::string operator()(bool value) const { return value ? "true" : "false"; }
  std::string operator()(std::int64_t value) const { return fmt::format("{}", value); }
  std::string operator()(double value) const {
    // Whole numbers keep their point: 32.0 is not an integer.
    const std::string text = fmt::format("{}", value);
    return text.find_first_not_of("-0123456789") == std::string::npos ? text + ".0" : text;
  }
  std::string operator()(const std::string& value) const { return quoted(shortened(value)); }
  std::string operator()(const List& value) const { return fmt::format("a list of {}", value.size()); }
  std::string operator()(const Fields& /*value*/) const { return "a table"; }
  std::string operator()(DateOrTime /*value*/) const { return "a date or time"; }
};

}  // namespace

std::string Place::text() const { return line > 0 ? fmt::format("{}:{}", source, line) : source; }

std::string describe(const Value& value) { return std::visit(Describe{}, value.data); }

std::string quoted(std::string_view text) {
  std::string result = "\"";
  for (const char c : text) {
    const auto code = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      result += '\\';
      result += c;
    } else if (code < 0x20 || code == 0x7F) {
      result += fmt::format("\\u{:04X}", code);
    } else {
      result += c;
    }
  }
  return result + '"';
}

}  // namespace trireme::config
