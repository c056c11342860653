// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "trireme/config/run_config.hpp"

namespace CLI {
class App;
}

namespace trireme::cli {

/// Arguments of `plan --search`.
struct PlanSearch {
  bool asked = false;
  std::string output;  ///< path of the best run file; empty: RUN-best.toml in the working directory
};

/// Path of the best run file.
[[nodiscard]] std::string search_output(const std::string& run_file, const PlanSearch& arguments);

/// Throws ConfigError if `path` exists and is not an unedited file of an earlier search.
void check_search_output(const std::string& path);

/// Writes `run_file` to `path` in a form that `check_search_output` recognizes. Throws WriteError.
void write_search_output(const std::string& path, const std::string& run_file);

void add_plan_search(CLI::App& command, PlanSearch& arguments);

/// Searches, prints the best ten and writes the best as a run file; with a progress line where standard error is a
/// terminal. `config`: complete, `sync.policy` resolved. Throws ConfigError, also if the file to
/// write is in the way, before it searches; WriteError.
void plan_search(const config::RunConfig& config, int ranks, const std::string& machine, const std::string& run_file,
                 const PlanSearch& arguments);

}  // namespace trireme::cli
