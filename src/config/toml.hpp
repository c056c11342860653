// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "trireme/config/value.hpp"

namespace trireme::config {

/// The sections of a run file in the order of their lines. Throws ConfigError with file and line when `text` is not
/// TOML.
[[nodiscard]] Fields read_toml(std::string_view text, const std::string& name);

/// Whether a key of `toml` has so many parts (a.b.c...) that its nested tables would overflow the stack. Keys of our
/// files have at most three.
[[nodiscard]] bool has_endless_key(std::string_view toml);

/// An override taken apart: `section.key=value`.
struct Override {
  std::string section;
  std::string key;
  Value value;
  std::string raw;  ///< the text after `=`, for keys that take any text
};

/// Splits `section.key=value`. The value is TOML; other bare words or paths are strings. Throws ConfigError when it has
/// no such form.
[[nodiscard]] Override read_override(const std::string& text);

}  // namespace trireme::config
