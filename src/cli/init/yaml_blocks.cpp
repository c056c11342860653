// SPDX-License-Identifier: Apache-2.0
#include "cli/init/yaml_blocks.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>
#include <sstream>
#include <utility>
#include <vector>

#include "trireme/base/error.hpp"
#include "trireme/base/text.hpp"

namespace trireme::cli {
namespace {

using Json = nlohmann::json;

struct YamlLine {
  std::size_t indent = 0;
  std::string text;  ///< without indentation and comment
  int number = 0;
};

class YamlBlocks {
 public:
  YamlBlocks(std::string_view text, const std::string& file) : file_(file) {
    std::istringstream stream{std::string(text)};
    int number = 0;
    for (std::string line; std::getline(stream, line);) {
      ++number;
      if (line.ends_with('\r')) line.pop_back();
      const std::string_view content = without_comment(line);
      const std::size_t indent = std::min(content.find_first_not_of(' '), content.size());
      if (indent == content.size() || (indent == 0 && content == "---")) continue;
      if (content[indent] == '\t') fail(number, "a tab in the indentation");
      lines_.push_back({indent, std::string(trim(content)), number});
    }
  }

  Json parse() {
    if (lines_.empty()) return Json::object();
    Json value = block(lines_.front().indent, 0);
    if (at_ < lines_.size()) fail(lines_[at_].number, "the indentation fits no line before");
    return value;
  }

 private:
  [[noreturn]] void fail(int line, const std::string& problem) const {
    throw ConfigError(
        fmt::format("{}, line {}: {} is not read here; convert the file: python -c \"import json, sys, yaml; "
                    "json.dump(yaml.safe_load(open(sys.argv[1])), sys.stdout)\" {} > job.json, and give job.json",
                    file_, line, problem, file_));
  }

  /// The line up to a comment, blanks at its end removed.
  static std::string_view without_comment(std::string_view line) {
    char quote = 0;
    for (std::size_t i = 0; i < line.size(); ++i) {
      if (quote != 0) {
        if (line[i] == quote) quote = 0;
      } else if ((line[i] == '"' || line[i] == '\'') && (i == 0 || line[i - 1] == ' ')) {
        quote = line[i];
      } else if (line[i] == '#' && (i == 0 || line[i - 1] == ' ')) {
        line = line.substr(0, i);
        break;
      }
    }
    while (line.ends_with(' ')) line.remove_suffix(1);
    return line;
  }

  /// The lines of one indentation: a mapping or a list.
  Json block(std::size_t indent, int depth) {
    constexpr int deepest = 64;
    if (depth > deepest) fail(lines_[at_].number, "such a depth");
    const bool list = is_item(lines_[at_].text);
    Json value = list ? Json::array() : Json::object();
    while (at_ < lines_.size() && lines_[at_].indent == indent && is_item(lines_[at_].text) == list) {
      if (list) {
        value.push_back(item(indent, depth));
        continue;
      }
      const YamlLine line = lines_[at_++];
      const auto [key, rest] = split(line);
      if (value.contains(key)) fail(line.number, fmt::format("the repeated key {}", key));
      value[key] = rest.empty() ? nested(indent, depth) : scalar(rest, line.number);
    }
    if (at_ < lines_.size() && lines_[at_].indent > indent) fail(lines_[at_].number, "text of several lines");
    return value;
  }

  static bool is_item(std::string_view text) { return text == "-" || text.starts_with("- "); }

  /// "- value", or "- key: value" with more keys below it.
  Json item(std::size_t indent, int depth) {
    YamlLine& line = lines_[at_];
    const std::string_view rest = trim(std::string_view(line.text).substr(1));
    if (rest.empty()) {
      ++at_;
      return nested(indent, depth);
    }
    if (key_end(rest) == std::string_view::npos && !is_item(rest))
      return scalar(lines_[at_++].text.substr(2), line.number);
    const std::size_t inner = indent + line.text.size() - rest.size();
    line = {inner, std::string(rest), line.number};
    return block(inner, depth + 1);
  }

  /// The block below a key without a value; null without one. A list may have the key's indentation.
  Json nested(std::size_t indent, int depth) {
    if (at_ == lines_.size()) return nullptr;
    const YamlLine& next = lines_[at_];
    if (next.indent > indent || (next.indent == indent && is_item(next.text))) return block(next.indent, depth + 1);
    return nullptr;
  }

  /// The colon behind a key.
  static std::size_t key_end(std::string_view text) {
    for (std::size_t at = 0; (at = text.find(':', at)) != std::string_view::npos; ++at)
      if (at + 1 == text.size() || text[at + 1] == ' ') return at;
    return std::string_view::npos;
  }

  std::pair<std::string, std::string> split(const YamlLine& line) const {
    const std::size_t end = key_end(line.text);
    if (end == std::string_view::npos || end == 0) fail(line.number, fmt::format("\"{}\"", printable(line.text)));
    const Json key = scalar(line.text.substr(0, end), line.number);
    return {key.is_string() ? key.get<std::string>() : line.text.substr(0, end),
            std::string(trim(std::string_view(line.text).substr(end + 1)))};
  }

  Json scalar(std::string_view text, int line) const {
    text = trim(text);
    if (text.empty() || text == "~" || text == "null" || text == "Null" || text == "NULL") return nullptr;
    if (text == "true" || text == "True" || text == "TRUE") return true;
    if (text == "false" || text == "False" || text == "FALSE") return false;
    if (text == "[]") return Json::array();
    if (text == "{}") return Json::object();
    const char first = text.front();
    if (first == '"' || first == '\'') {
      if (text.size() < 2 || text.back() != first ||
          text.substr(1, text.size() - 2).find_first_of("\"'\\") != std::string_view::npos)
        fail(line, "a quoted text with quotes or escapes in it");
      return std::string(text.substr(1, text.size() - 2));
    }
    if (std::string_view("[{&*!|>%@`").find(first) != std::string_view::npos)
      fail(line, fmt::format("\"{}\"", printable(text)));
    return number(text);
  }

  static Json number(std::string_view text) {
    std::string digits(text);
    const bool grouped = text.front() >= '0' && text.front() <= '9' && !text.ends_with('_');
    if (grouped) std::erase(digits, '_');
    const std::string_view rest = digits.front() == '+' ? std::string_view(digits).substr(1) : std::string_view(digits);
    if (rest.empty() || rest.find_first_not_of("0123456789.eE+-") != std::string_view::npos) return std::string(text);
    const char* const end = rest.data() + rest.size();
    if (std::int64_t whole = 0; std::from_chars(rest.data(), end, whole).ptr == end) return whole;
    if (double real = 0; std::from_chars(rest.data(), end, real).ptr == end) return real;
    return std::string(text);
  }

  std::string file_;
  std::vector<YamlLine> lines_;
  std::size_t at_ = 0;
};

}  // namespace

nlohmann::json parse_yaml_blocks(std::string_view text, const std::string& file) {
  return YamlBlocks(text, file).parse();
}

}  // namespace trireme::cli
