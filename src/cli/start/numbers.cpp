// SPDX-License-Identifier: Apache-2.0
#include "cli/start/numbers.hpp"

#include <fmt/format.h>

#include <charconv>

namespace trireme::cli {

std::string check_whole_number(const std::string& text, std::int64_t least, std::int64_t most) {
  std::int64_t number = 0;
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), number);
  const bool whole = problem == std::errc{} && end == text.data() + text.size();
  if (whole && number >= least && number <= most) return {};
  return fmt::format("{} is not a whole number from {} to {}", text.substr(0, 40), least, most);
}

std::string check_real_number(const std::string& text, double least, double most) {
  double number = 0;
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), number);
  const bool whole = problem == std::errc{} && end == text.data() + text.size();
  if (whole && number >= least && number <= most) return {};
  return fmt::format("{} is not a number from {} to {}", text.substr(0, 40), least, most);
}

}  // namespace trireme::cli
