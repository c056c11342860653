// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>
#include <cstdio>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cli/commands.hpp"
#include "cli/start/help_text.hpp"
#include "cli/start/standard_streams.hpp"
#include "cli/this_build.hpp"
#include "trireme/base/error.hpp"
#include "trireme/base/text.hpp"

namespace trireme::cli {

/// The command that the line begins with; null if there is none of that name.
inline const CLI::App* command_of(const CLI::App& app, int argc, char** argv) {
  for (const CLI::App* known : app.get_subcommands([](const CLI::App*) { return true; }))
    if (argc > 1 && known->get_name() == std::span(argv, static_cast<std::size_t>(argc))[1]) return known;
  return nullptr;
}

/// The first argument that looks like an option but is not one of `app`'s ("--promt", "-p"); "" if there is none.
/// Values of options are skipped.
inline std::string first_unknown_option(const CLI::App& app, std::span<char* const> arguments) {
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const std::string_view argument = arguments[i];
    const bool is_long = argument.starts_with("--");
    if (argument == "--") return "";
    if (!is_long && (argument.size() < 2 || argument[0] != '-' || std::isalpha(argument[1]) == 0)) continue;
    const std::string name(is_long ? argument.substr(0, argument.find('=')) : argument.substr(0, 2));
    const CLI::Option* const known = app.get_option_no_throw(name);
    if (known == nullptr) return name;
    if (known->get_items_expected_max() > 0 && argument.size() == name.size()) ++i;
  }
  return "";
}

/// The option of `app` that `name` was meant to be: the nearest, or of one letter the only one that begins with it.
inline std::optional<std::string> option_nearest(const CLI::App& app, const std::string& name) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options())
    for (const std::string& known : option->get_lnames()) names.push_back("--" + known);
  if (name.starts_with("--")) return nearest(name, names);
  std::erase_if(names, [&](const std::string& known) { return known[2] != name[1]; });
  return names.size() == 1 ? std::optional(names.front()) : std::nullopt;
}

/// Error message for a command line whose command does not exist, or for the first unknown option of its command; "" if
/// all are known.
inline std::string unknown_word(const CLI::App& app, int argc, char** argv) {
  const std::span arguments(argv, static_cast<std::size_t>(argc));
  const std::vector<const CLI::App*> commands = app.get_subcommands([](const CLI::App*) { return true; });
  const CLI::App* const command = command_of(app, argc, argv);
  const auto hint = [](const std::optional<std::string>& meant) { return meant ? "; did you mean " + *meant : ""; };
  if (command == nullptr && argc > 1 && arguments[1][0] != '-') {
    std::vector<std::string> names;
    for (const CLI::App* known : commands) names.push_back(known->get_name());
    return fmt::format("\"{}\" is not a command{}", arguments[1], hint(nearest(arguments[1], names)));
  }
  const CLI::App& asked = command == nullptr ? app : *command;
  const std::string name = first_unknown_option(
      asked, arguments.subspan(std::min<std::size_t>(arguments.size(), command == nullptr ? 1 : 2)));
  if (name.empty()) return "";
  const auto near = option_nearest(asked, name);
  std::string help = hint(near);
  if (!near && command == nullptr &&
      std::ranges::any_of(commands, [&](const CLI::App* known) { return known->get_option_no_throw(name) != nullptr; }))
    help = "; options of a command come after its name";
  else if (!near && asked.get_option_no_throw("--set") != nullptr)
    help = "; keys of the run file are set with --set SECTION.KEY=VALUE";
  return fmt::format("{} is not an option of {}{}", name, asked.get_name(), help);
}

/// Remedy for a --set without its value, or with two; "" if there is none.
inline std::string remedy_of_set(const CLI::App& app, int argc, char** argv) {
  const std::span arguments(argv, static_cast<std::size_t>(argc));
  const CLI::App* const command = command_of(app, argc, argv);
  const bool sets = command != nullptr && command->get_option_no_throw("--set") != nullptr;
  for (std::size_t i = 1; sets && i + 1 < arguments.size(); ++i) {
    const std::string_view next = arguments[i + 1];
    const bool pair = next.find('=') != std::string_view::npos;
    if (arguments[i] == std::string_view("--set") && !pair)
      return fmt::format("--set takes SECTION.KEY=VALUE without a blank, not {}", next);
    if (arguments[i] != std::string_view("--set") && pair && !next.starts_with("-") && next.find('.') < next.find('='))
      return fmt::format("Each key needs its own --set: --set {}", next);
  }
  return "";
}

/// The error message for a command line that cannot be parsed: the mistake, a remedy, and the relevant help.
inline std::string message_on(const CLI::ParseError& mistake, const CLI::App& app, int argc, char** argv) {
  std::string what = mistake.what();
  if (const std::size_t count = what.find(": 1 required ");
      count != std::string::npos)  // "--try: 1 required INT missing"
    what = fmt::format("{} requires a value", what.substr(0, count));
  std::string more = remedy_of_set(app, argc, argv);
  const std::string unknown = more.empty() ? unknown_word(app, argc, argv) : "";
  const int code = mistake.get_exit_code();
  const auto is = [code](CLI::ExitCodes kind) { return code == static_cast<int>(kind); };
  if (!unknown.empty() &&
      (is(CLI::ExitCodes::RequiredError) || is(CLI::ExitCodes::RequiresError) || is(CLI::ExitCodes::ExtrasError)))
    what = unknown;  // which is why something required is missing
  else
    more += unknown;
  const CLI::App* const command = command_of(app, argc, argv);
  return fmt::format("{}. {}{}See `trireme {}--help`.", what, more, more.empty() ? "" : ". ",
                     command == nullptr ? "" : command->get_name() + " ");
}

/// Parses the command line and runs the subcommand that it stored in `chosen`; the exit code. Throws Error. on_mistake:
/// called before a mistake of the command line is printed.
inline int run_command(CLI::App& app, const Action& chosen, int argc, char** argv,
                       const std::function<void()>& on_mistake = {}) {
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& asked) {  // --help, --version
    return print_help(app, asked);
  } catch (const CLI::ParseError& mistake) {
    if (on_mistake) on_mistake();
    fmt::print(stderr, "trireme: error: {}\n", printable_lines(message_on(mistake, app, argc, argv)));
    return static_cast<int>(ExitCode::usage);
  }
  check_instructions();
  const int code = chosen();
  flush_standard_output();
  return code;
}

}  // namespace trireme::cli
