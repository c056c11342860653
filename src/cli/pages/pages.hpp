// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <string>

namespace CLI {
class App;
}

/// Pages generated from the options of the command line and the run file's table of keys.
namespace trireme::cli {

/// A completion script for bash, which zsh loads by bashcompinit: commands, their options and choices, the keys of
/// --set.
[[nodiscard]] std::string bash_completion(const CLI::App& app);

/// Manual pages by file name: trireme.1, one for each command, and trireme-run-file.5.
[[nodiscard]] std::map<std::string, std::string> man_pages(const CLI::App& app);

}  // namespace trireme::cli
