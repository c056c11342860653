// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "trireme/base/error.hpp"
#include "trireme/config/load.hpp"

namespace trireme::config {

/// The shortest run file that is right.
inline const std::string smallest_run = R"([model]
vocab_size = 320
hidden_size = 64
intermediate_size = 96
layers = 2
heads = 4

[data]
train = "tokens.bin"
seq_len = 32

[batch]
global = 8
micro = 2

[train]
steps = 10
)";

inline RunConfig parse(const std::string& text, const std::vector<std::string>& overrides = {}) {
  return parse_run_file(text, "run.toml", overrides);
}

/// The smallest run with overrides.
inline RunConfig with(const std::vector<std::string>& overrides) { return parse(smallest_run, overrides); }

/// The message of the ConfigError that parsing throws; empty when it throws none.
inline std::string mistakes_of(const std::string& text, const std::vector<std::string>& overrides = {}) {
  try {
    (void)parse(text, overrides);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

/// The same for the smallest run with overrides.
inline std::string mistakes_with(const std::vector<std::string>& overrides) {
  return mistakes_of(smallest_run, overrides);
}

}  // namespace trireme::config
