// SPDX-License-Identifier: Apache-2.0
//
// Run files, help and docs/run-file.md from the table of options.
#include <fmt/core.h>

#include <algorithm>

#include "config/reader.hpp"
#include "trireme/config/load.hpp"
#include "trireme/config/options.hpp"

namespace trireme::config {

namespace {

std::string default_of(const Option& option) {
  if (option.required_unless) return "required";
  if (!option.default_text.empty()) return option.default_text;
  return option.print(RunConfig{}).value_or("none");
}

/// Lines of at most `columns` characters, indented; a longer word has its own line.
std::string wrapped(std::string_view text, int columns) {
  constexpr std::string_view indent = "    ";
  const std::size_t width = static_cast<std::size_t>(std::max(columns, 40)) - indent.size();
  std::string out;
  while (!text.empty()) {
    std::size_t end = text.size();
    if (end > width) {
      end = text.rfind(' ', width);
      if (end == std::string_view::npos) end = std::min(text.find(' '), text.size());
    }
    out += fmt::format("{}{}\n", indent, text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return out;
}

}  // namespace

std::string print_run_file(const RunConfig& config) {
  std::string text(effective_header);
  std::string section;
  for (const Option& option : options()) {
    const Printed value = option.print(config);
    if (!value) continue;
    if (option.section != section) text += fmt::format("\n[{}]\n", option.section);
    section = option.section;
    text += fmt::format("{:<44} # {}\n", option.key + " = " + *value, option.meaning);
  }
  return text;
}

std::string explain_options(int columns, std::string_view section) {
  std::string text, before;
  for (const Option& option : options()) {
    if (!section.empty() && option.section != section) continue;
    if (option.section != before) text += fmt::format("{}[{}]\n", before.empty() ? "" : "\n", option.section);
    before = option.section;
    text += fmt::format("{} = {} ({})\n{}", option.name(), default_of(option), option.type,
                        wrapped(option.meaning, columns));
  }
  return text;
}

std::string options_reference() {
  const auto cell = [](std::string text) {  // Markdown would take these for its own
    for (std::size_t at = 0; (at = text.find_first_of("|<", at)) != std::string::npos; at += 2) text.insert(at, "\\");
    return text;
  };
  std::string text =
      "# Run file reference\n\n"
      "Every key of the TOML run file. This page is generated from the table of options that also provides the parser "
      "and\n"
      "`trireme train --help` (`src/config/options_*.cpp`); a test keeps it current: run `config_tests` with\n"
      "`TRIREME_UPDATE_GOLDENS=1` after a change. Bytes are integers or strings such as \"40GiB\"; `${VAR}` in paths "
      "is\n"
      "expanded; `--set section.key=value` overrides the file. Unknown keys and invalid values are errors (exit code "
      "2),\n"
      "all reported at once.\n";
  std::string section;
  for (const Option& option : options()) {
    if (option.section != section)
      text += fmt::format("\n## [{}]\n\n| key | type | default | meaning |\n|---|---|---|---|\n", option.section);
    section = option.section;
    text += fmt::format("| `{}` | {} | {} | {} |\n", option.name(), cell(option.type), cell(default_of(option)),
                        cell(option.meaning));
  }
  return text;
}

}  // namespace trireme::config
