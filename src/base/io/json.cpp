// SPDX-License-Identifier: Apache-2.0
#include "base/io/json.hpp"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <set>
#include <vector>

#include "trireme/base/error.hpp"
#include "trireme/base/text.hpp"

namespace trireme::io {

namespace {

using nlohmann::json;

constexpr int most_levels = 16;
constexpr int most_levels_of_any = 64;  // of settings; files of weights have few
constexpr std::size_t most_quoted = 120;

}  // namespace

json parse_json(const std::string& file, std::string_view text) {
  std::vector<std::set<std::string>> keys;  // of every object that is open
  const auto watch = [&](int depth, json::parse_event_t event, json& value) {
    if (depth > most_levels) {
      throw CheckpointError(
          fmt::format("{}: its JSON nests deeper than {} levels; get an intact copy", file, most_levels));
    }
    if (event == json::parse_event_t::object_start) keys.emplace_back();
    if (event == json::parse_event_t::object_end) keys.pop_back();
    if (event == json::parse_event_t::key && !keys.back().insert(value.get<std::string>()).second) {
      throw CheckpointError(fmt::format("{}: its JSON has the key {} twice; remove one of them", file,
                                        in_quotes(value.get_ref<const std::string&>())));
    }
    return true;
  };
  try {
    return json::parse(text, watch);
  } catch (const json::parse_error& error) {
    throw CheckpointError(
        fmt::format("{}: is not valid JSON (byte {} of {}); get an intact copy", file, error.byte, text.size()));
  } catch (const json::exception&) {
    throw CheckpointError(fmt::format("{}: its JSON holds a number out of range; get an intact copy", file));
  }
}

bool nests_deep(std::string_view json) {
  int depth = 0;
  bool quoted = false;
  for (std::size_t i = 0; i < json.size(); ++i) {
    const char c = json[i];
    if (c == '"') quoted = !quoted;
    if (quoted && c == '\\') ++i;
    if (quoted) continue;
    if (c == '[' || c == '{') ++depth;
    if (c == ']' || c == '}') --depth;
    if (depth > most_levels_of_any) return true;
  }
  return false;
}

json parse_or_discard(std::string_view text) {
  json value = json::value_t::discarded;
  if (!nests_deep(text)) value = json::parse(text, nullptr, false);
  return value;
}

std::string shown(const json& value) {
  const std::string text = value.dump(-1, ' ', false, json::error_handler_t::replace);
  return printable(text.size() > most_quoted ? text.substr(0, most_quoted) + "..." : text);
}

std::string in_quotes(std::string_view text) {
  const bool cut = text.size() > most_quoted;
  const json quoted(std::string(text.substr(0, most_quoted)) + (cut ? "..." : ""));
  return quoted.dump(-1, ' ', false, json::error_handler_t::replace);
}

}  // namespace trireme::io
