// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>

#include "cli/commands.hpp"
#include "cli/start/standard_streams.hpp"
#include "cli/this_build.hpp"
#include "trireme/base/error.hpp"

namespace trireme::cli {

/// Parses the command line and runs the subcommand that it stored in `chosen`; the exit code. Throws Error.
inline int run_command(CLI::App& app, const Action& chosen, int argc, char** argv) {
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& asked) {  // --help, --version
    return app.exit(asked);
  } catch (const CLI::ParseError& mistake) {
    fmt::print(stderr, "trireme: error: {}. See `trireme --help`.\n", mistake.what());
    return static_cast<int>(ExitCode::usage);
  }
  check_instructions();
  const int code = chosen();
  flush_standard_output();
  return code;
}

}  // namespace trireme::cli
