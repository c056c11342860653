// SPDX-License-Identifier: Apache-2.0
#include "data/text/json_line.hpp"

#include <fmt/format.h>

#include <cmath>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "trireme/base/error.hpp"
#include "trireme/base/text.hpp"

namespace trireme::data::text {

namespace {

/// Replaces extensions that Python's json module writes by default, at equal length: a lone surrogate becomes U+FFFD,
/// as UTF-8 cannot hold it; NaN, Infinity and numbers beyond a double become 0 followed by blanks.
class Python {
 public:
  explicit Python(std::string_view line) : line_(line) {}

  /// The rewritten line; none if there is nothing to rewrite.
  [[nodiscard]] std::optional<std::string> rewritten() {
    for (std::size_t at = 0; at < line_.size();) at = line_[at] == '"' ? string_at(at) : value_at(at);
    return changed_ ? std::optional(std::move(line_)) : std::nullopt;
  }

 private:
  /// The code unit of an escape \uXXXX at `at`; none if there is no escape.
  [[nodiscard]] std::optional<unsigned long> unit_at(std::size_t at) const {
    if (at + 6 > line_.size() || line_[at] != '\\' || line_[at + 1] != 'u') return std::nullopt;
    const std::string digits = line_.substr(at + 2, 4);
    if (digits.find_first_not_of("0123456789abcdefABCDEF") != std::string::npos) return std::nullopt;
    return std::strtoul(digits.c_str(), nullptr, 16);
  }
  void replace(std::size_t at, std::size_t length, std::string_view by) {
    line_.replace(at, length, std::string(by) + std::string(length - by.size(), ' '));
    changed_ = true;
  }

  /// Rewrites a string; its opening quote is at `at`. Returns the position after its closing quote.
  std::size_t string_at(std::size_t at) {
    for (++at; at < line_.size() && line_[at] != '"';) {
      if (line_[at] != '\\') {
        ++at;
        continue;
      }
      const auto unit = unit_at(at);
      if (!unit) {
        at += 2;
        continue;
      }
      const bool leads = *unit >= 0xD800 && *unit < 0xDC00;
      const auto next = leads ? unit_at(at + 6) : std::nullopt;
      if (next && *next >= 0xDC00 && *next < 0xE000) {
        at += 12;
        continue;
      }
      if (*unit >= 0xD800 && *unit < 0xE000) replace(at, 6, "\\uFFFD");
      at += 6;
    }
    return std::min(at + 1, line_.size());
  }

  /// Outside strings: a number, a word, or one other character.
  std::size_t value_at(std::size_t at) {
    const std::size_t end =
        std::min(line_.find_first_not_of("+-.0123456789abcdefghijklmnopqrstuvwxyzINEaf", at), line_.size());
    if (end == at) return at + 1;
    const std::string word = line_.substr(at, end - at);
    if (word == "NaN" || word == "Infinity" || word == "-Infinity") {
      replace(at, word.size(), "0");
    } else if (word.find_first_not_of("+-.0123456789eE") == std::string::npos &&
               std::isinf(std::strtod(word.c_str(), nullptr))) {
      replace(at, word.size(), "0");
    }
    return end;
  }

  std::string line_;
  bool changed_ = false;
};

/// Message of nlohmann-json, such as "invalid string: control character U+0009 (HT) must be escaped to \u0009 or \t".
std::string cause_of(const nlohmann::json::exception& error) {
  std::string text = error.what();
  if (const std::size_t at = text.find(" - "); at != std::string::npos) text.erase(0, at + 3);
  return text.substr(0, text.find("; last read"));
}

/// The reason why a line is not a JSON object, with a remedy. at: the byte of the syntax error, from 1, and cause; 0:
/// none.
std::string mistake_of(std::string_view line, std::size_t at, const std::string& cause) {
  const std::string_view text = trim(line);
  if (text.starts_with('['))
    return "a JSON list; write one object a line, as with jq -c '.[]' FILE | trireme tokenize ... -";
  if (!text.starts_with('{')) return "not a JSON object; leave --field out for plain text";
  if (at > line.size())
    return "a JSON object that does not end on its line; write one object a line, as with jq -c . FILE | trireme "
           "tokenize ... -";
  return fmt::format("a JSON object with a mistake at byte {}: {}; correct the line, or remove it", at, cause);
}

/// The names of all texts in `object`, those of nested objects joined by dots.
void add_text_fields(const nlohmann::json& object, const std::string& outer, std::vector<std::string>& names) {
  for (const auto& [key, value] : object.items()) {
    if (value.is_string()) names.push_back(outer + key);
    if (value.is_object()) add_text_fields(value, outer + key + ".", names);
  }
}

}  // namespace

nlohmann::json object_of_line(std::string_view line, const std::string& name, std::int64_t number) {
  std::size_t at = 1;
  std::string cause;
  const auto parsed = [&](std::string_view text) -> std::optional<nlohmann::json> {
    try {
      nlohmann::json object = nlohmann::json::parse(text);
      if (object.is_object()) return object;
    } catch (const nlohmann::json::parse_error& error) {
      at = error.byte;
      cause = cause_of(error);
      if (cause.find("UTF-8") != std::string::npos)
        throw DataError(fmt::format(
            "{}, line {}: byte {} is not UTF-8; convert the file, as with iconv -f LATIN1 -t UTF-8", name, number, at));
    } catch (const nlohmann::json::exception& error) {  // a number out of range
      cause = cause_of(error);
    }
    return std::nullopt;
  };
  if (auto object = parsed(line)) return std::move(*object);
  if (const auto rewritten = Python(line).rewritten())
    if (auto object = parsed(*rewritten)) return std::move(*object);
  throw DataError(fmt::format("{}, line {}: it is {}", name, number, mistake_of(line, at, cause)));
}

const nlohmann::json* find_field(const nlohmann::json& object, std::string_view field) {
  if (!object.is_object()) return nullptr;
  if (const auto found = object.find(field); found != object.end()) return &*found;
  for (std::size_t dot = field.find('.'); dot != std::string_view::npos; dot = field.find('.', dot + 1)) {
    const auto outer = object.find(field.substr(0, dot));
    if (outer == object.end()) continue;
    if (const nlohmann::json* inner = find_field(*outer, field.substr(dot + 1))) return inner;
  }
  return nullptr;
}

std::string text_of_line(std::string_view line, const std::string& field, const std::string& name,
                         std::int64_t number) {
  const nlohmann::json object = object_of_line(line, name, number);
  const nlohmann::json* found = find_field(object, field);
  if (found == nullptr) {
    std::vector<std::string> names;
    add_text_fields(object, "", names);
    throw DataError(fmt::format(
        "{}, line {}: there is no field \"{}\"; {}", name, number, field,
        names.empty() ? "no field of the line is a text" : "name one of its text fields: " + join(names, ", ")));
  }
  if (found->is_null()) return {};
  if (!found->is_string())
    throw DataError(
        fmt::format("{}, line {}: the field \"{}\" is {} {}, not a text; name the field of the text, or remove the "
                    "line",
                    name, number, field, found->is_array() || found->is_object() ? "an" : "a", found->type_name()));
  return found->get<std::string>();
}

}  // namespace trireme::data::text
