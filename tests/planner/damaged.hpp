// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <random>
#include <string>
#include <string_view>
#include <vector>

namespace trireme::planner {

/// Damages texts of lines, reproducibly: values replaced by nonsense, lines lost or repeated, bytes, the end cut off.
class Damage {
 public:
  explicit Damage(unsigned seed) : random_(seed) {}

  std::size_t below(std::size_t count) { return random_() % count; }

  /// `text` after one mistake. `separators`: what stands around a value of a line, such as "=#" or ",".
  std::string of(const std::string& text, std::string_view separators) {
    if (text.empty()) return text;
    std::vector<std::string> lines = lines_of(text);
    std::string& line = lines[below(lines.size())];
    switch (below(8)) {
      case 0: line.clear(); break;
      case 1: lines.push_back(lines[below(lines.size())]); break;
      case 2: return text.substr(0, below(text.size()));
      case 3: return with_bytes(text);
      case 4: std::swap(line, lines[below(lines.size())]); break;
      default: replace_value(line, separators);
    }
    std::string out;
    for (const std::string& kept : lines) out += kept + "\n";
    return out;
  }

 private:
  static std::vector<std::string> lines_of(std::string_view text) {
    std::vector<std::string> lines;
    while (!text.empty()) {
      const std::size_t end = std::min(text.find('\n'), text.size());
      lines.emplace_back(text.substr(0, end));
      text.remove_prefix(std::min(end + 1, text.size()));
    }
    return lines;
  }

  std::string with_bytes(std::string text) {
    for (std::size_t hits = 1 + below(4); hits > 0; --hits)
      text[below(text.size())] = static_cast<char>(below(2) == 0 ? 32 + below(95) : below(256));
    return text;
  }

  void replace_value(std::string& line, std::string_view separators) {
    static const std::array<std::string, 32> nonsense{
        "",       "0",    "-1",      "1",          "2.5",   "1e309",           "-1e309",  "1e308",
        "1e-308", "nan",  "inf",     "-inf",       "1e15",  "2147483648",      "999999",  "9223372036854775807",
        "true",   "\"\"", "\"x\"",   "[]",         "{}",    "[[[[[1]]]]]",     "1e7",     "18446744073709551616",
        "0x10",   "1_0",  "\"1GB\"", "2026-11-23", "1 # 2", std::string(3, 0), "\"a,b\"", std::string(400, '9') + "W"};
    std::vector<std::size_t> begins{0};
    for (std::size_t i = 0; i < line.size(); ++i)
      if (separators.find(line[i]) != std::string_view::npos) begins.push_back(i + 1);
    const std::size_t begin = begins[below(begins.size())];
    const std::size_t end = std::min(line.find_first_of(separators, begin), line.size());
    line.replace(begin, end - begin, " " + nonsense[below(nonsense.size())] + " ");
  }

  std::mt19937 random_;
};

}  // namespace trireme::planner
