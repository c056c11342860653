// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/config/run_config.hpp"
#include "trireme/mesh/mesh.hpp"

namespace trireme::config {

/// Reads, validates and completes a run file. `overrides` are `section.key=value` (value
/// in TOML, bare words allowed as strings). Throws ConfigError with all mistakes at once,
/// each with file, line, key, found and expected value; for an unknown key with the
/// nearest known one.
[[nodiscard]] RunConfig load_run_file(const std::string& path, const std::vector<std::string>& overrides = {});

/// The same from text; `name` replaces the file in messages.
[[nodiscard]] RunConfig parse_run_file(std::string_view text, const std::string& name,
                                       const std::vector<std::string>& overrides = {});

/// `config`, which is complete, with `section.key=value` overrides, completed and checked again. Throws ConfigError.
[[nodiscard]] RunConfig set(const RunConfig& config, const std::vector<std::string>& overrides);

/// Values of an effective run file that any version of Trireme printed: keys that this version does not have or refuses
/// are left out, missing ones have their defaults. Nothing is checked. Throws ConfigError for text that is not TOML.
[[nodiscard]] RunConfig read_effective(std::string_view text);

/// An option with two values, printed; nothing if a configuration has no value to print.
struct Difference {
  std::string section, key;
  std::optional<std::string> before, after;
};

/// Options whose values differ, in the table's order.
[[nodiscard]] std::vector<Difference> differences(const RunConfig& before, const RunConfig& after);

/// The effective configuration as a run file that parses to the same values: `train` saves it with the run.
[[nodiscard]] std::string print_run_file(const RunConfig& config);

/// A line per key: section.key, default, (type); below it the meaning, wrapped to `columns`. section: only its keys;
/// "": all. Printed by `trireme train --help`.
[[nodiscard]] std::string explain_options(int columns, std::string_view section);

/// The same as a Markdown page: docs/run-file.md.
[[nodiscard]] std::string options_reference();

/// Settings that depend on the number of ranks: the mesh, and the microbatches of a step.
struct Resolved : mesh::Mesh {
  int accumulation = 1;
};

/// Fits the configuration to `ranks` ranks. Throws ConfigError (all mistakes at once) when the mesh does not multiply
/// to `ranks`, or global is not a whole multiple of micro * dp (naming the nearest that are), or global < dp (tensor
/// parallelism is the remedy).
[[nodiscard]] Resolved resolve(const RunConfig& config, int ranks);

/// Throws ConfigError for settings that `plan` supports and `train` does not yet, each with supported ones: with a
/// pipeline, schedules that split the backward, and GPUs.
void require_trainable(const RunConfig& config);

}  // namespace trireme::config
