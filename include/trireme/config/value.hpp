// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

/// A run file as read, before any key is known: free of the TOML library, so that only one source file sees that.
namespace trireme::config {

/// Origin of a value: a line of a run file, or an override.
struct Place {
  std::string source;     ///< the file's name, or "--set section.key=value"
  std::int64_t line = 0;  ///< from 1; 0 for an override
  [[nodiscard]] std::string text() const;
};

struct Value;
struct Field;
using List = std::vector<Value>;
using Fields = std::vector<Field>;
/// A TOML value that no key of ours takes: a date or a time.
struct DateOrTime {};

struct Value {
  std::variant<bool, std::int64_t, double, std::string, List, Fields, DateOrTime> data;
  Place place;
};

/// One `key = value`.
struct Field {
  std::string key;
  Value value;
};

/// The value as a person wrote it, cut after 60 characters: `-5`, `"abc"`, `a list of 3`.
[[nodiscard]] std::string describe(const Value& value);

/// `text` as a TOML string in double quotes.
[[nodiscard]] std::string quoted(std::string_view text);

}  // namespace trireme::config
