// SPDX-License-Identifier: Apache-2.0
#include "huggingface/json_object.hpp"

#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/io/json.hpp"

namespace trireme::huggingface {

using nlohmann::json;

bool is_off(const json& value) {
  if (value.is_number()) return value.get<double>() == 0;
  if (value.is_boolean()) return !value.get<bool>();
  return value.is_string() ? value.get_ref<const std::string&>().empty() : value.empty();
}

const json* JsonObject::find(const std::string& key) const {
  asked_.insert(key);
  const auto found = object_.find(key);
  return found == object_.end() || found->is_null() ? nullptr : &*found;
}

bool JsonObject::is_null(const std::string& key) const {
  const auto found = object_.find(key);
  return found != object_.end() && found->is_null();
}

std::optional<std::int64_t> JsonObject::integer(const std::string& key, std::int64_t least) const {
  const json* value = find(key);
  if (value == nullptr) return std::nullopt;
  const bool fits =
      value->is_number_integer() &&
      (!value->is_number_unsigned() ||
       value->get<std::uint64_t>() <= static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()));
  if (fits && value->get<std::int64_t>() >= least) return value->get<std::int64_t>();
  unexpected(key, fmt::format("a whole number of at least {}", least));
  return std::nullopt;
}

std::optional<double> JsonObject::positive(const std::string& key) const {
  const json* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (value->is_number() && value->get<double>() > 0 && std::isfinite(value->get<double>()))
    return value->get<double>();
  unexpected(key, "a number above 0");
  return std::nullopt;
}

std::optional<double> JsonObject::at_least_zero(const std::string& key) const {
  const json* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (value->is_number() && value->get<double>() >= 0 && std::isfinite(value->get<double>()))
    return value->get<double>();
  unexpected(key, "a number of at least 0");
  return std::nullopt;
}

std::optional<bool> JsonObject::flag(const std::string& key) const {
  const json* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (value->is_boolean()) return value->get<bool>();
  unexpected(key, "true or false");
  return std::nullopt;
}

std::optional<std::string> JsonObject::text(const std::string& key) const {
  const json* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (value->is_string()) return value->get<std::string>();
  unexpected(key, "text");
  return std::nullopt;
}

std::int64_t JsonObject::required_integer(const std::string& key) const {
  if (!has(key)) missing(key);
  return integer(key, 1).value_or(0);
}

double JsonObject::required_positive(const std::string& key) const {
  if (!has(key)) missing(key);
  return positive(key).value_or(0);
}

void JsonObject::unexpected(const std::string& key, const std::string& expected) const {
  const json* value = find(key);
  mistakes_.add(
      fmt::format("{}{} = {}; expected {}", where_, key, value == nullptr ? "nothing" : io::shown(*value), expected));
}

void JsonObject::missing(const std::string& key) const { mistakes_.add(fmt::format("{}{} is missing", where_, key)); }

std::vector<std::string> JsonObject::unread() const {
  std::vector<std::string> keys;
  for (const auto& [key, value] : object_.items())
    if (!asked_.contains(key) && !is_off(value))
      keys.push_back(fmt::format("{}{} = {}", where_, key, io::shown(value)));
  return keys;
}

}  // namespace trireme::huggingface
