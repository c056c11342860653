// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cli/commands.hpp"
#include "cli/start/standard_streams.hpp"
#include "cli/this_build.hpp"
#include "trireme/base/error.hpp"
#include "trireme/base/text.hpp"

namespace trireme::cli {

/// What to do about the first option of `arguments` that `command` does not have; "" where it has them all.
inline std::string unknown_option(const CLI::App& command, std::span<char* const> arguments) {
  std::vector<std::string> names;
  for (const CLI::Option* option : command.get_options())
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  for (const std::string_view argument : arguments) {
    const std::string name(argument.substr(0, argument.find('=')));
    if (!name.starts_with("--") || name == "--" || std::ranges::find(names, name) != names.end()) continue;
    const auto near = nearest(name, names);
    const bool sets = std::ranges::find(names, "--set") != names.end();
    return fmt::format(" {} is not an option of {}{}{}.", name, command.get_name(),
                       near ? fmt::format("; did you mean {}", *near) : "",
                       sets && !near ? "; keys of the run file are set with --set SECTION.KEY=VALUE" : "");
  }
  return "";
}

/// What to do about a command line that cannot be parsed; "" where the parser's own message is all.
inline std::string remedy(const CLI::App& app, int argc, char** argv) {
  const std::span arguments(argv, static_cast<std::size_t>(argc));
  std::vector<std::string> names;
  for (const CLI::App* known : app.get_subcommands([](const CLI::App*) { return true; }))
    names.push_back(known->get_name());
  if (const std::string_view command = argc > 1 ? arguments[1] : "-";
      !command.starts_with("-") && std::ranges::find(names, command) == names.end()) {
    const auto near = nearest(command, names);
    return fmt::format(" \"{}\" is not a command{}.", command, near ? fmt::format("; did you mean {}", *near) : "");
  }
  for (std::size_t i = 1; i + 1 < arguments.size(); ++i)
    if (arguments[i] == std::string_view("--set") &&
        std::string_view(arguments[i + 1]).find('=') == std::string_view::npos)
      return fmt::format(" --set takes SECTION.KEY=VALUE without a blank, not {}.", arguments[i + 1]);
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; }))
    if (argc > 1 && command->get_name() == arguments[1]) return unknown_option(*command, arguments.subspan(2));
  return "";
}

/// Parses the command line and runs the subcommand that it stored in `chosen`; the exit code. Throws Error.
inline int run_command(CLI::App& app, const Action& chosen, int argc, char** argv) {
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& asked) {  // --help, --version
    return app.exit(asked);
  } catch (const CLI::ParseError& mistake) {
    fmt::print(stderr, "trireme: error: {}.{} See `trireme --help`.\n", mistake.what(), remedy(app, argc, argv));
    return static_cast<int>(ExitCode::usage);
  }
  check_instructions();
  const int code = chosen();
  flush_standard_output();
  return code;
}

}  // namespace trireme::cli
