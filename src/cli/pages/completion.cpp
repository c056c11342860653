// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <CLI/CLI.hpp>

#include "cli/pages/pages.hpp"
#include "trireme/config/options.hpp"

namespace trireme::cli {
namespace {

/// The words of an option that takes one of a few, such as {auto,cpu,cuda}; empty for others.
std::string choices_of(const CLI::Option& option) {
  const std::string type = option.get_type_name();
  const std::size_t begin = type.find('{'), end = type.find('}');
  if (begin == std::string::npos || end == std::string::npos) return "";
  std::string words = type.substr(begin + 1, end - begin - 1);
  for (char& c : words)
    if (c == ',') c = ' ';
  return words;
}

std::string names_of(const CLI::Option& option) {
  std::string names;
  for (const std::string& name : option.get_snames()) names += "-" + name + " ";
  for (const std::string& name : option.get_lnames()) names += "--" + name + " ";
  return names;
}

/// Completions after `trireme COMMAND`: its options, and the values of those with a fixed set.
std::string case_of(const CLI::App& command) {
  std::string options, choices;
  for (const CLI::Option* option : command.get_options()) {
    const std::string names = names_of(*option);
    options += names;
    const std::string words = choices_of(*option);
    if (words.empty()) continue;
    for (const std::string& name : option->get_lnames())
      choices += fmt::format("        --{}) words=\"{}\" ;;\n", name, words);
  }
  return fmt::format("    {})\n      options=\"{}\"\n      case $previous in\n{}        *) ;;\n      esac ;;\n",
                     command.get_name(), options, choices);
}

}  // namespace

std::string bash_completion(const CLI::App& app) {
  std::string commands, cases, keys;
  for (const CLI::App* command : app.get_subcommands({})) {
    commands += command->get_name() + " ";
    cases += case_of(*command);
  }
  for (const config::Option& option : config::options()) keys += option.name() + "= ";
  return fmt::format(
      R"(# Completion of trireme for bash, made by `trireme completion`. For zsh: autoload -U bashcompinit && bashcompinit first.
_trireme() {{
  local current=${{COMP_WORDS[COMP_CWORD]}} previous=${{COMP_WORDS[COMP_CWORD-1]}} command=${{COMP_WORDS[1]}}
  local options= words=
  COMPREPLY=()
  if ((COMP_CWORD == 1)); then
    COMPREPLY=($(compgen -W "{0}--help --version" -- "$current"))
    return
  fi
  case $command in
{1}    *) return ;;
  esac
  if [[ $previous == --set ]]; then
    compopt -o nospace
    COMPREPLY=($(compgen -W "{2}" -- "$current"))
  elif [[ -n $words ]]; then
    COMPREPLY=($(compgen -W "$words" -- "$current"))
  elif [[ $current == -* ]]; then
    COMPREPLY=($(compgen -W "$options" -- "$current"))
  fi
}}
complete -o default -F _trireme trireme
)",
      commands, cases, keys);
}

}  // namespace trireme::cli
