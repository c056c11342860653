// SPDX-License-Identifier: Apache-2.0
#include "trireme/base/units.hpp"

#include <fmt/core.h>

#include <array>
#include <charconv>
#include <cmath>
#include <utility>

#include "trireme/base/error.hpp"
#include "trireme/base/text.hpp"

namespace trireme {

namespace {

/// Three significant digits without an exponent, for 0 <= value < 10000.
std::string three_digits(double value) {
  return value >= 99.95 ? fmt::format("{:.0f}", value) : fmt::format("{:.3g}", value);
}

constexpr std::array<std::pair<std::string_view, double>, 10> byte_units{{{"", 1.0},
                                                                          {"B", 1.0},
                                                                          {"KiB", 0x1p10},
                                                                          {"MiB", 0x1p20},
                                                                          {"GiB", 0x1p30},
                                                                          {"TiB", 0x1p40},
                                                                          {"KB", 1e3},
                                                                          {"MB", 1e6},
                                                                          {"GB", 1e9},
                                                                          {"TB", 1e12}}};

[[noreturn]] void refuse_bytes(std::string_view text, std::string_view why) {
  throw ConfigError(
      fmt::format("\"{}\" is not a number of bytes ({}); write an integer or a number with KiB, MiB, GiB, TiB, KB, MB, "
                  "GB or TB, as in \"40GiB\"",
                  text.substr(0, 40), why));
}

}  // namespace

std::string to_text(Bytes bytes) {
  constexpr std::array<std::string_view, 7> units{"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  const std::string sign = bytes.value < 0 ? "-" : "";
  double value = std::abs(static_cast<double>(bytes.value));
  std::size_t unit = 0;
  while (value >= 1023.5 && unit + 1 < units.size()) {  // 1023.5 would print as 1024
    value /= 1024;
    ++unit;
  }
  return fmt::format("{}{} {}", sign, three_digits(value), units[unit]);
}

Bytes parse_bytes(std::string_view text) {
  const std::string_view trimmed = trim(text);
  double number = 0;
  const auto [end, problem] =
      std::from_chars(trimmed.data(), trimmed.data() + trimmed.size(), number, std::chars_format::fixed);
  if (problem != std::errc{}) refuse_bytes(text, "it does not begin with a number");
  if (!(number >= 0)) refuse_bytes(text, "it is negative");
  const std::string_view unit = trim(trimmed.substr(static_cast<std::size_t>(end - trimmed.data())));
  for (const auto& [name, factor] : byte_units) {
    if (unit != name) continue;
    if (factor == 1.0) {  // a plain integer keeps all its digits, which a double does not
      std::int64_t exact = 0;
      const auto [exact_end, exact_problem] = std::from_chars(trimmed.data(), end, exact);
      if (exact_problem == std::errc::result_out_of_range) refuse_bytes(text, "it is beyond 8 EiB");
      if (exact_end != end) refuse_bytes(text, "a fraction of a byte");
      return {exact};
    }
    const double bytes = number * factor;
    if (bytes >= 0x1p63) refuse_bytes(text, "it is beyond 8 EiB");
    return {static_cast<std::int64_t>(std::llround(bytes))};
  }
  refuse_bytes(text, fmt::format("unknown unit \"{}\"", unit.substr(0, 20)));
}

std::string to_short_text(double count) {
  constexpr std::array<std::string_view, 6> units{"", "k", "M", "B", "T", "P"};
  if (!std::isfinite(count)) return "?";
  double value = std::abs(count);
  std::size_t unit = 0;
  while (value >= 999.5 && unit + 1 < units.size()) {
    value /= 1000;
    ++unit;
  }
  return fmt::format("{}{}{}", count < 0 ? "-" : "", three_digits(value), units[unit]);
}

std::string duration_text(double seconds) {
  if (!std::isfinite(seconds) || seconds < 0 || seconds > 1e15) return "?";
  if (seconds < 59.95) return fmt::format("{:.1f} s", seconds);
  const long long whole = std::llround(seconds);
  if (whole < 3600) return fmt::format("{} min {:02} s", whole / 60, whole % 60);
  const long long minutes = std::llround(seconds / 60);
  if (minutes < 24LL * 60) return fmt::format("{} h {:02} min", minutes / 60, minutes % 60);
  const long long hours = std::llround(seconds / 3600);
  return fmt::format("{} d {:02} h", hours / 24, hours % 24);
}

std::string_view to_text(DType type) { return type == DType::fp32 ? "fp32" : "bf16"; }

}  // namespace trireme
