// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "trireme/base/text.hpp"
#include "trireme/config/names.hpp"
#include "trireme/config/run_config.hpp"
#include "trireme/config/value.hpp"

/// Conversion between values of a run file and members of RunConfig: one `read` and one `print` per type.
namespace trireme::config {

/// Result of reading a value: nothing on success, else the expected form: "an integer, at least 1".
using Expected = std::optional<std::string>;
/// A value as TOML; nothing when it was not given and has no default.
using Printed = std::optional<std::string>;

/// Bounds of a number.
struct Limits {
  double min = -std::numeric_limits<double>::infinity();
  double max = std::numeric_limits<double>::infinity();
  bool min_excluded = false;
  bool max_excluded = false;
  [[nodiscard]] bool allow(double value) const;
  /// ", from 1 to 8" or ", above 0"; empty without limits.
  [[nodiscard]] std::string text() const;
};

constexpr Limits at_least(double min) { return {.min = min}; }
constexpr Limits above(double min) { return {.min = min, .min_excluded = true}; }
constexpr Limits between(double min, double max) { return {.min = min, .max = max}; }
constexpr Limits from_to_below(double min, double max) { return {.min = min, .max = max, .max_excluded = true}; }

[[nodiscard]] Expected read(const Value& value, bool& target);
[[nodiscard]] Expected read(const Value& value, std::int64_t& target, const Limits& limits);
[[nodiscard]] Expected read(const Value& value, std::uint64_t& target, const Limits& limits);
[[nodiscard]] Expected read(const Value& value, double& target, const Limits& limits);
[[nodiscard]] Expected read(const Value& value, Bytes& target, const Limits& limits);
[[nodiscard]] Expected read(const Value& value, std::vector<std::int64_t>& target, const Limits& limits);
[[nodiscard]] Expected read(const Value& value, std::string& target);
[[nodiscard]] Expected read(const Value& value, std::vector<std::string>& target);
/// The same as a path: `${VAR}` is expanded (`$${` is an escaped `${`), an undefined variable is a mistake.
[[nodiscard]] Expected read_path(const Value& value, std::string& target);

[[nodiscard]] Printed print(bool value);
[[nodiscard]] Printed print(std::int64_t value);
[[nodiscard]] Printed print(std::uint64_t value);
[[nodiscard]] Printed print(double value);
[[nodiscard]] Printed print(Bytes value);
[[nodiscard]] Printed print(const std::vector<std::int64_t>& value);
[[nodiscard]] Printed print(const std::string& value);
[[nodiscard]] Printed print(const std::vector<std::string>& value);
/// Nothing when empty; `${` is written `$${`.
[[nodiscard]] Printed print_path(const std::string& value);

/// Name of a type's values in help.
[[nodiscard]] inline std::string type_name(const bool& /*any*/) { return "true | false"; }
[[nodiscard]] inline std::string type_name(const std::int64_t& /*any*/) { return "integer"; }
[[nodiscard]] inline std::string type_name(const std::uint64_t& /*any*/) { return "integer"; }
[[nodiscard]] inline std::string type_name(const double& /*any*/) { return "number"; }
[[nodiscard]] inline std::string type_name(const Bytes& /*any*/) { return "bytes"; }
[[nodiscard]] inline std::string type_name(const std::vector<std::int64_t>& /*any*/) { return "integers"; }

template <class T, class... More>
[[nodiscard]] Expected read(const Value& value, std::optional<T>& target, const More&... limits) {
  T given{};
  Expected expected = read(value, given, limits...);
  if (!expected) target = given;
  return expected;
}

template <class T>
[[nodiscard]] Printed print(const std::optional<T>& value) {
  return value ? print(*value) : std::nullopt;
}

template <class T>
[[nodiscard]] std::string type_name(const std::optional<T>& /*any*/) {
  return type_name(T{});
}

/// "immediate | deferred | auto".
template <class Choice>
[[nodiscard]] std::string choice_names() {
  std::vector<std::string> names;
  for (const auto& [choice, name] : names_of(Choice{})) names.emplace_back(name);
  return join(names, " | ");
}

template <class Choice>
[[nodiscard]] Expected read_choice(const Value& value, Choice& target) {
  if (const auto* text = std::get_if<std::string>(&value.data)) {
    for (const auto& [choice, name] : names_of(Choice{})) {
      if (*text != name) continue;
      target = choice;
      return std::nullopt;
    }
  }
  return "one of " + choice_names<Choice>();
}

}  // namespace trireme::config
