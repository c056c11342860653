// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <functional>
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

/// The command that the line begins with; null where there is none of that name.
inline const CLI::App* command_of(const CLI::App& app, int argc, char** argv) {
  for (const CLI::App* known : app.get_subcommands([](const CLI::App*) { return true; }))
    if (argc > 1 && known->get_name() == std::span(argv, static_cast<std::size_t>(argc))[1]) return known;
  return nullptr;
}

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
  const CLI::App* const command = command_of(app, argc, argv);
  const bool sets = command != nullptr && command->get_option_no_throw("--set") != nullptr;
  for (std::size_t i = 1; sets && i + 1 < arguments.size(); ++i) {
    const std::string_view next = arguments[i + 1];
    const bool pair = next.find('=') != std::string_view::npos;
    if (arguments[i] == std::string_view("--set") && !pair)
      return fmt::format(" --set takes SECTION.KEY=VALUE without a blank, not {}.", next);
    if (arguments[i] != std::string_view("--set") && pair && !next.starts_with("-") && next.find('.') < next.find('='))
      return fmt::format(" Every key has a --set of its own: --set {}.", next);
  }
  return command == nullptr ? "" : unknown_option(*command, arguments.subspan(2));
}

/// The message on a command line that cannot be parsed: what is wrong, what to do, which help to read.
inline std::string message_on(const CLI::ParseError& mistake, const CLI::App& app, int argc, char** argv) {
  std::string what = mistake.what();
  if (const std::size_t count = what.find(": 1 required ");
      count != std::string::npos)  // "--try: 1 required INT missing"
    what = fmt::format("{} requires a value", what.substr(0, count));
  const CLI::App* const command = command_of(app, argc, argv);
  return fmt::format("{}.{} See `trireme {}--help`.", what, remedy(app, argc, argv),
                     command == nullptr ? "" : command->get_name() + " ");
}

/// Parses the command line and runs the subcommand that it stored in `chosen`; the exit code. Throws Error. on_mistake:
/// called before a mistake of the command line is printed.
inline int run_command(CLI::App& app, const Action& chosen, int argc, char** argv,
                       const std::function<void()>& on_mistake = {}) {
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& asked) {  // --help, --version
    return app.exit(asked);
  } catch (const CLI::ParseError& mistake) {
    if (on_mistake) on_mistake();
    fmt::print(stderr, "trireme: error: {}\n", message_on(mistake, app, argc, argv));
    return static_cast<int>(ExitCode::usage);
  }
  check_instructions();
  const int code = chosen();
  flush_standard_output();
  return code;
}

}  // namespace trireme::cli
