// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace CLI {
class App;
class Success;
}  // namespace CLI

namespace trireme::cli {

/// Columns of the terminal of standard output, else of COLUMNS, else 100.
[[nodiscard]] int help_columns();

/// `text` with lines of at most `columns` characters where words permit. A description that follows a gap of two blanks
/// continues in its own column, other text at its indentation, a command after a backslash.
[[nodiscard]] std::string wrap_help(const std::string& text, int columns);

/// Prints the text of --help, wrapped to `help_columns`, or of --version; returns the exit code.
int print_help(const CLI::App& app, const CLI::Success& asked);

}  // namespace trireme::cli
