// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

namespace trireme::cli {

/// Checks a number of the command line: nothing when `text` is
/// a whole number from `least` to `most`, else the mistake.
[[nodiscard]] std::string check_whole_number(const std::string& text, std::int64_t least, std::int64_t most);

/// The same for CLI11's `check`.
[[nodiscard]] inline auto whole_number(std::int64_t least, std::int64_t most) {
  return [=](const std::string& text) { return check_whole_number(text, least, most); };
}

/// Nothing when `text` is a number from `least` to `most`, which nan is not, else the mistake.
[[nodiscard]] std::string check_real_number(const std::string& text, double least, double most);

/// The same for CLI11's `check`.
[[nodiscard]] inline auto real_number(double least, double most) {
  return [=](const std::string& text) { return check_real_number(text, least, most); };
}

}  // namespace trireme::cli
