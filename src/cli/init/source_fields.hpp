// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <initializer_list>
#include <map>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/base/error.hpp"

/// Configuration files of other trainers, for `trireme init --from-torchtitan` and `--from-lingua`.
namespace trireme::cli {

/// A field without a counterpart in a run file. pattern: a glob over dotted names.
struct WithoutCounterpart {
  std::string_view pattern, reason;
};

/// The fields of a file by dotted name ("training.steps"), and which of them were read. A null is a field that is not
/// given. Values of a wrong type are collected as mistakes.
class SourceFields {
 public:
  /// Names: of one field in several versions of the other program; messages have the first where none is given.
  using Names = std::initializer_list<std::string_view>;

  SourceFields(std::string file, const nlohmann::json& fields);

  /// The value of the first name that is given, else null. All names count as read.
  [[nodiscard]] const nlohmann::json& take(Names names);
  [[nodiscard]] std::int64_t integer(Names names, std::int64_t fallback);
  [[nodiscard]] double number(Names names, double fallback);
  [[nodiscard]] bool flag(Names names, bool fallback);
  [[nodiscard]] std::string text(Names names, std::string_view fallback);
  [[nodiscard]] std::vector<std::string> texts(Names names);

  /// Whether the file has the field, null included.
  [[nodiscard]] bool has(std::string_view name) const;
  /// The name that the file has, else the first.
  [[nodiscard]] std::string_view present(Names names) const;
  /// Adds a mistake about a field.
  void refuse(std::string_view name, std::string_view problem);
  /// Throws ConfigError with all mistakes.
  void raise() const;
  /// "field = value: reason" of each field that was not read, with the reason of the first pattern that fits. Many
  /// fields of one pattern are one line.
  [[nodiscard]] std::vector<std::string> unread(std::span<const WithoutCounterpart> known) const;

 private:
  void flatten(const std::string& name, const nlohmann::json& value);
  void refuse_type(Names names, std::string_view wanted);

  std::string file_;
  std::map<std::string, nlohmann::json, std::less<>> fields_;
  std::map<std::string, bool, std::less<>> read_;
  Mistakes mistakes_;
};

/// The fields of a YAML file (.yaml, .yml), a JSON object or a TOML file. Throws ConfigError.
[[nodiscard]] nlohmann::json read_source(const std::string& path);

}  // namespace trireme::cli
