// SPDX-License-Identifier: Apache-2.0
//
// Run files, help and docs/run-file.md from the table of options.
#include <fmt/core.h>

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

std::string availability(const Option& option) { return option.not_yet ? " [not yet available]" : ""; }

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

std::string explain_options() {
  std::string text;
  std::string section;
  for (const Option& option : options()) {
    if (option.section != section) text += fmt::format("{}[{}]\n", section.empty() ? "" : "\n", option.section);
    section = option.section;
    text += fmt::format("{:<40} {:<26} {} ({}){}\n", option.name(), default_of(option), option.meaning, option.type,
                        availability(option));
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
    text += fmt::format("| `{}` | {} | {} | {}{} |\n", option.name(), cell(option.type), cell(default_of(option)),
                        cell(option.meaning), availability(option));
  }
  return text;
}

}  // namespace trireme::config
