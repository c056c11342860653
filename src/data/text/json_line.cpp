// SPDX-License-Identifier: Apache-2.0
#include "data/text/json_line.hpp"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <vector>

#include "trireme/base/error.hpp"
#include "trireme/base/text.hpp"

namespace trireme::data::text {

nlohmann::json object_of_line(std::string_view line, const std::string& name, std::int64_t number) {
  nlohmann::json object;
  try {
    object = nlohmann::json::parse(line);
  } catch (const nlohmann::json::exception& reason) {
    throw DataError(
        fmt::format("{}, line {}: no JSON ({}); leave --field out for plain text", name, number, reason.what()));
  }
  if (!object.is_object()) throw DataError(fmt::format("{}, line {}: no JSON object", name, number));
  return object;
}

std::string text_of_line(std::string_view line, const std::string& field, const std::string& name,
                         std::int64_t number) {
  nlohmann::json object = object_of_line(line, name, number);
  const auto found = object.find(field);
  if (found == object.end()) {
    std::vector<std::string> names;
    for (const auto& [key, value] : object.items())
      if (value.is_string()) names.push_back(key);
    throw DataError(fmt::format("{}, line {}: there is no field \"{}\"; its texts are {}: give one of them by --field",
                                name, number, field, names.empty() ? "none" : join(names, ", ")));
  }
  if (found->is_null()) return {};
  if (!found->is_string())
    throw DataError(fmt::format("{}, line {}: the field \"{}\" is no text", name, number, field));
  return std::move(found->get_ref<std::string&>());
}

}  // namespace trireme::data::text
