// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <sstream>

#include "cli/pages/pages.hpp"
#include "trireme/base/build_info.hpp"
#include "trireme/config/options.hpp"

namespace trireme::cli {
namespace {

/// Text as roff shows it: no requests at the beginning of a line, no escapes, hyphens that can be copied.
std::string roff(const std::string& text) {
  std::string out;
  bool begins = true;
  for (const char c : text) {
    if (begins && (c == '.' || c == '\'')) out += "\\&";
    if (c == '\\')
      out += "\\e";
    else if (c == '-')
      out += "\\-";
    else
      out += c;
    begins = c == '\n';
  }
  return out;
}

std::string title(const std::string& name, int section, const std::string& about) {
  return fmt::format(".TH {} {} {} trireme\n.SH NAME\n{} \\- {}\n", roff(name), section, build_info().date, roff(name),
                     roff(about));
}

/// Each option with its argument, default and help.
std::string options_of(const CLI::App& command) {
  std::string text;
  for (const CLI::Option* option : command.get_options()) {
    std::string names = option->get_name(false, true);
    for (std::size_t at = 0; (at = names.find(',', at)) != std::string::npos; at += 2) names.replace(at, 1, ", ");
    std::string takes = option->get_type_name();
    if (!takes.empty() && option->nonpositional()) names += " " + takes;
    const std::string fallback = option->get_default_str();
    text += fmt::format(".TP\n.B {}\n{}{}\n", roff(names), roff(option->get_description()),
                        fallback.empty() ? "" : fmt::format(" (default: {})", roff(fallback)));
  }
  return text;
}

std::string as_written(const std::string& text) { return ".nf\n" + roff(text) + "\n.fi\n"; }

std::string command_page(const CLI::App& command) {
  const std::string name = command.get_name();
  std::string usage = "trireme " + name + " [OPTIONS]";
  for (const CLI::Option* option : command.get_options())
    if (!option->nonpositional()) usage += " " + option->get_name(true);
  return title("trireme-" + name, 1, command.get_description()) + ".SH SYNOPSIS\n.B " + roff(usage) +
         "\n.SH OPTIONS\n" + options_of(command) + ".SH NOTES\n" +
         (name == "train" ? std::string("The keys of the run file are in trireme\\-run\\-file(5).\n")
                          : as_written(command.get_footer())) +
         ".SH SEE ALSO\ntrireme(1)\n";
}

std::string program_page(const CLI::App& app) {
  std::string text = title("trireme", 1, "trains language models on clusters") + ".SH SYNOPSIS\n.B trireme COMMAND\n" +
                     ".SH DESCRIPTION\n" + roff(app.get_description()) + "\n.SH COMMANDS\n";
  for (const CLI::App* command : app.get_subcommands({}))
    text += fmt::format(".TP\n.BR trireme\\-{} (1)\n{}\n", roff(command->get_name()), roff(command->get_description()));
  return text + ".SH NOTES\n" + as_written(app.get_footer()) + ".SH SEE ALSO\ntrireme\\-run\\-file(5)\n";
}

std::string run_file_page() {
  std::string text = title("trireme-run-file", 5, "the keys of a run file") +
                     ".SH DESCRIPTION\nA run file is TOML. Unknown keys and invalid values are errors, all reported at "
                     "once.\n";
  std::string section;
  const config::RunConfig defaults;
  for (const config::Option& option : config::options()) {
    if (option.section != section) text += fmt::format(".SH [{}]\n", roff(option.section));
    section = option.section;
    const std::string fallback = option.required_unless         ? "required"
                                 : !option.default_text.empty() ? option.default_text
                                                                : option.print(defaults).value_or("none");
    text += fmt::format(".TP\n.B {}\n{} ({}; default: {})\n", roff(option.key), roff(option.meaning), roff(option.type),
                        roff(fallback));
  }
  return text + ".SH SEE ALSO\ntrireme\\-train(1)\n";
}

}  // namespace

std::map<std::string, std::string> man_pages(const CLI::App& app) {
  std::map<std::string, std::string> pages{{"trireme.1", program_page(app)}, {"trireme-run-file.5", run_file_page()}};
  for (const CLI::App* command : app.get_subcommands({}))
    pages.emplace(fmt::format("trireme-{}.1", command->get_name()), command_page(*command));
  return pages;
}

}  // namespace trireme::cli
