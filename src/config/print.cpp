// SPDX-License-Identifier: Apache-2.0
#include <fmt/core.h>

#include "trireme/config/load.hpp"
#include "trireme/config/options.hpp"

namespace trireme::config {

namespace {

std::string default_of(const Option& option) {
  if (option.required_unless) return "required";
  if (!option.default_text.empty()) return option.default_text;
  return option.print(RunConfig{}).value_or("none");
}

std::string availability(const Option& option) {
  if (option.is_reserved) return " [reserved: not yet available]";
  if (!option.only_yet) return "";
  return option.only_yet->empty() ? " [not yet available]" : " [yet only " + join(*option.only_yet, ", ") + "]";
}

}  // namespace

std::string print_run_file(const RunConfig& config) {
  std::string text = "# The effective run file: every key, defaults filled in.\n";
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

}  // namespace trireme::config
