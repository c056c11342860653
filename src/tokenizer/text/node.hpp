// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace trireme::tokenizer::hf {

/// A value of tokenizer.json with its key, which begins every message: "x/tokenizer.json:
/// pre_tokenizer.pretokenizers[1]". It refers to the parsed file.
class Node {
 public:
  Node(const nlohmann::json& value, std::string file, std::string key = "")
      : value_(&value), file_(std::move(file)), key_(std::move(key)) {}

  [[nodiscard]] const nlohmann::json& value() const { return *value_; }
  /// "FILE: KEY".
  [[nodiscard]] std::string where() const;
  [[nodiscard]] bool is_null() const;
  /// The value at `name`, a null one if it is missing.
  [[nodiscard]] Node operator[](std::string_view name) const;
  /// The elements of an array. Throws DataError when it is none.
  [[nodiscard]] std::vector<Node> items() const;

  /// The text at `name`, or the fallback if it is missing or null. Throws DataError when it is anything else.
  [[nodiscard]] std::string text(std::string_view name) const;
  [[nodiscard]] std::string text(std::string_view name, std::string fallback) const;
  [[nodiscard]] bool flag(std::string_view name, bool fallback) const;
  [[nodiscard]] std::int64_t whole(std::string_view name) const;
  /// A text of exactly one character.
  [[nodiscard]] char32_t character(std::string_view name) const;

  /// Throws DataError: this component's "type" is not one of `supported`.
  [[noreturn]] void refuse_type(std::string_view supported) const;
  /// Throws DataError with the key and `what`.
  [[noreturn]] void refuse(std::string_view what) const;

 private:
  const nlohmann::json* value_;
  std::string file_;
  std::string key_;
};

}  // namespace trireme::tokenizer::hf
