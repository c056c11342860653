// SPDX-License-Identifier: Apache-2.0
#include "trireme/config/text_source.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>
#include <utility>

namespace trireme::config {
namespace {

/// "path#name=value,...": position of the #, or npos.
std::size_t options_of(std::string_view source) {
  const std::size_t at = source.rfind('#');
  if (at == std::string_view::npos) return at;
  const std::string_view name = source.substr(at + 1, source.substr(at + 1).find('='));
  const bool assigns = at + 1 + name.size() < source.size();
  const bool is_name =
      !name.empty() && std::ranges::all_of(name, [](char c) { return (c >= 'a' && c <= 'z') || c == '_'; });
  return assigns && is_name ? at : std::string_view::npos;
}

bool is_mix_option(std::string_view option) {
  return option.starts_with("epochs=") || option.starts_with("temperature=");
}

/// "a=1,b=2" behind the # of a source.
std::vector<std::string> options_list(std::string_view source) {
  std::vector<std::string> options;
  const std::size_t at = options_of(source);
  if (at == std::string_view::npos) return options;
  for (std::string_view rest = source.substr(at + 1); !rest.empty();) {
    const std::string_view option = rest.substr(0, rest.find(','));
    rest.remove_prefix(std::min(option.size() + 1, rest.size()));
    options.emplace_back(option);
  }
  return options;
}

constexpr const char* options_form =
    "text with options of field, response, chat, skip_bad, plain and cache, as in "
    "\"web/*.jsonl#field=content,skip_bad=10\"";

/// Sets an option; returns what is expected instead, "" if it is right.
std::string set_option(TextSource& text, const std::string& name, const std::string& value) {
  const std::array<std::pair<const char*, std::string TextSource::*>, 4> texts{{{"field", &TextSource::field},
                                                                                {"response", &TextSource::response},
                                                                                {"chat", &TextSource::chat},
                                                                                {"cache", &TextSource::cache}}};
  if (value.empty()) return std::string(options_form) + "; " + name + " has no value";
  for (const auto& [key, member] : texts)
    if (name == key) {
      text.*member = value;
      return "";
    }
  if (name == "plain" && (value == "true" || value == "false")) {
    text.plain = value == "true";
    return "";
  }
  if (name == "skip_bad") {
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), text.skip_bad);
    if (error == std::errc{} && end == value.data() + value.size() && text.skip_bad >= 0) return "";
    return "skip_bad = a number of lines, not " + value;
  }
  return std::string(options_form) + "; not " + name + "=" + value;
}

std::string mistake_of(const TextSource& text) {
  if (!text.chat.empty() && text.chat != "chatml" && text.chat != "llama3") return "chat=chatml or chat=llama3";
  if (!text.chat.empty() && !text.response.empty()) return "chat or response, not both";
  if (text.field.empty() && (!text.chat.empty() || !text.response.empty()))
    return "chat and response with field, the field of the messages or of the prompt";
  if (text.plain && !text.field.empty()) return "plain or field, not both";
  if (text.path.empty()) return "a path before the options";
  return "";
}

}  // namespace

bool names_text(std::string_view source) {
  if (!std::ranges::all_of(options_list(source), is_mix_option)) return true;
  source = source.substr(0, options_of(source));
  const bool tokens = source.ends_with(".bin") || source.ends_with(".idx");
  if ((source.find_first_of("*?") != std::string_view::npos && !tokens) || source.ends_with('/')) return true;
  for (const std::string_view compressed : {".gz", ".zst"})
    if (source.ends_with(compressed)) {
      source.remove_suffix(compressed.size());
      break;
    }
  return std::ranges::any_of(std::array<std::string_view, 4>{".jsonl", ".json", ".ndjson", ".txt"},
                             [&](std::string_view end) { return source.ends_with(end); });
}

std::variant<TextSource, std::string> parse_text_source(const std::string& source) {
  TextSource text{.path = source.substr(0, options_of(source))};
  for (const std::string& option : options_list(source)) {
    if (is_mix_option(option)) continue;
    const std::string name = option.substr(0, option.find('='));
    std::string expected = set_option(text, name, option.substr(std::min(name.size() + 1, option.size())));
    if (!expected.empty()) return expected;
  }
  std::string expected = mistake_of(text);
  if (!expected.empty()) return expected;
  return text;
}

MixOptions mix_options_of(const std::string& source) {
  MixOptions mix;
  for (const std::string& option : options_list(source)) {
    if (option.starts_with("epochs=")) mix.epochs = std::strtod(option.c_str() + 7, nullptr);
    if (option.starts_with("temperature=")) mix.temperature = std::strtod(option.c_str() + 12, nullptr);
  }
  return mix;
}

std::string with_option(const std::string& source, const std::string& option) {
  return source + (options_of(source) == std::string::npos ? "#" : ",") + option;
}

std::string without_mix_options(const std::string& source) {
  std::string rest = source.substr(0, options_of(source));
  for (const std::string& option : options_list(source))
    if (!is_mix_option(option)) rest = with_option(rest, option);
  return rest;
}

bool mixes_by_size(const RunConfig& config) {
  return std::ranges::any_of(config.data.train, [](const TokenSource& source) {
    return std::ranges::any_of(options_list(source.path), is_mix_option);
  });
}

bool resolves_sources(const RunConfig& config) {
  const auto any_text = [](const std::vector<TokenSource>& sources) {
    return std::ranges::any_of(sources, [](const TokenSource& source) { return names_text(source.path); });
  };
  return mixes_by_size(config) || any_text(config.data.train) ||
         (config.train.eval_every > 0 && any_text(config.data.validation));
}

}  // namespace trireme::config
