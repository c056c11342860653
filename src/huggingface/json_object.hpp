// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/base/error.hpp"

namespace trireme::huggingface {

/// Reads typed values of one JSON object and collects mistakes. A null counts as absent, as in Python. It records the
/// keys that were read.
class JsonObject {
 public:
  /// `where` precedes the key in messages: "" or "rope_scaling.". `object` must outlive this.
  JsonObject(const nlohmann::json& object, std::string where, Mistakes& mistakes)
      : object_(object), where_(std::move(where)), mistakes_(mistakes) {}

  /// `key` as messages have it.
  [[nodiscard]] std::string named(std::string_view key) const { return where_ + std::string(key); }
  /// The value of `key`; nothing when it is absent or null.
  [[nodiscard]] const nlohmann::json* find(const std::string& key) const;
  [[nodiscard]] bool has(const std::string& key) const { return find(key) != nullptr; }
  /// True when `key` is there and null, where that means something else than its absence.
  [[nodiscard]] bool is_null(const std::string& key) const;

  /// A whole number of at least `least`.
  [[nodiscard]] std::optional<std::int64_t> integer(const std::string& key, std::int64_t least) const;
  /// A number above 0.
  [[nodiscard]] std::optional<double> positive(const std::string& key) const;
  /// A number of at least 0.
  [[nodiscard]] std::optional<double> at_least_zero(const std::string& key) const;
  [[nodiscard]] std::optional<bool> flag(const std::string& key) const;
  [[nodiscard]] std::optional<std::string> text(const std::string& key) const;

  /// The same for values that must be there; a missing one is a mistake.
  [[nodiscard]] std::int64_t required_integer(const std::string& key) const;
  [[nodiscard]] double required_positive(const std::string& key) const;

  /// Reports that `key` has another value than `expected` describes.
  void unexpected(const std::string& key, const std::string& expected) const;
  void missing(const std::string& key) const;

  /// Whether `key` was read.
  [[nodiscard]] bool asked(std::string_view key) const { return asked_.contains(key); }
  /// Keys that were not read and that switch something on, as "rope_scaling.alpha = 8": neither null, false, 0 nor
  /// empty.
  [[nodiscard]] std::vector<std::string> unread() const;

 private:
  const nlohmann::json& object_;
  std::string where_;
  Mistakes& mistakes_;
  mutable std::set<std::string, std::less<>> asked_;
};

/// Whether a value switches nothing on: null, false, 0, or an empty text, list or table.
[[nodiscard]] bool is_off(const nlohmann::json& value);

}  // namespace trireme::huggingface
