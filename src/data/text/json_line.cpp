// SPDX-License-Identifier: Apache-2.0
#include "data/text/json_line.hpp"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <vector>

#include "data/text/check.hpp"
#include "trireme/base/error.hpp"
#include "trireme/base/text.hpp"

namespace trireme::data::text {

namespace {

/// Why a line is not a JSON object, and what to do about it. at: the byte where its JSON breaks, from 1; 0: nowhere.
std::string mistake_of(std::string_view line, std::size_t at) {
  const std::string_view text = trim(line);
  if (text.starts_with('['))
    return "a JSON list; write one object a line, as with jq -c '.[]' FILE | trireme tokenize ... -";
  if (!text.starts_with('{')) return "not a JSON object; leave --field out for plain text";
  if (at > line.size())
    return "a JSON object that does not end on its line; write one object a line, as with jq -c . FILE | trireme "
           "tokenize ... -";
  return fmt::format("a JSON object with a mistake at byte {}; correct the line, or remove it", at);
}

}  // namespace

nlohmann::json object_of_line(std::string_view line, const std::string& name, std::int64_t number) {
  std::size_t at = 1;  // a number out of range
  try {
    nlohmann::json object = nlohmann::json::parse(line);
    if (object.is_object()) return object;
  } catch (const nlohmann::json::parse_error& error) {
    at = error.byte;
    if (std::string_view(error.what()).find("UTF-8") != std::string_view::npos)
      throw DataError(fmt::format(
          "{}, line {}: byte {} is not UTF-8; convert the file, as with iconv -f LATIN1 -t UTF-8", name, number, at));
  } catch (const nlohmann::json::exception&) {
  }
  if (number == 1) TextCheck(name).check_format(line);
  throw DataError(fmt::format("{}, line {}: it is {}", name, number, mistake_of(line, at)));
}

std::string text_of_line(std::string_view line, const std::string& field, const std::string& name,
                         std::int64_t number) {
  nlohmann::json object = object_of_line(line, name, number);
  const auto found = object.find(field);
  if (found == object.end()) {
    std::vector<std::string> names;
    for (const auto& [key, value] : object.items())
      if (value.is_string()) names.push_back(key);
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
  return std::move(found->get_ref<std::string&>());
}

}  // namespace trireme::data::text
