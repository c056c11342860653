// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace trireme::data::text {

/// The JSON object on one line. `name` and the line's number, from 1, begin messages. Throws DataError.
[[nodiscard]] nlohmann::json object_of_line(std::string_view line, const std::string& name, std::int64_t number);

/// The value at `field`: a key, or keys joined by dots into nested objects ("message.content"); nullptr where there is
/// none.
[[nodiscard]] const nlohmann::json* find_field(const nlohmann::json& object, std::string_view field);

/// The text at `field` of a JSON object on one line; empty if it is null or empty. `name` and the line's number,
/// from 1, begin messages. Throws DataError when the line is not a JSON object or its field is missing or no text.
[[nodiscard]] std::string text_of_line(std::string_view line, const std::string& field, const std::string& name,
                                       std::int64_t number);

}  // namespace trireme::data::text
