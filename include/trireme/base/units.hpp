// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <string_view>

namespace trireme {

/// A number of bytes.
struct Bytes {
  std::int64_t value = 0;
  friend constexpr auto operator<=>(Bytes, Bytes) = default;
  friend constexpr Bytes operator+(Bytes a, Bytes b) { return {a.value + b.value}; }
  friend constexpr Bytes operator-(Bytes a, Bytes b) { return {a.value - b.value}; }
  constexpr Bytes& operator+=(Bytes b) {
    value += b.value;
    return *this;
  }
};

/// "1.5 GiB": three significant digits, binary units.
[[nodiscard]] std::string to_text(Bytes bytes);

/// Parses "40GiB", "512 MB", "123": binary (KiB..TiB) and decimal (KB..TB) units. Throws ConfigError with the allowed
/// units.
[[nodiscard]] Bytes parse_bytes(std::string_view text);

/// "12.3k", "1.24M", "8.03B": for counts of parameters and tokens.
[[nodiscard]] std::string to_short_text(double count);

/// "1 h 02 min", "3 min 20 s", "12.3 s": for durations a person reads.
[[nodiscard]] std::string duration_text(double seconds);

/// Element types of buffers on the wire and in memory.
enum class DType : std::uint8_t { fp32, bf16 };
[[nodiscard]] constexpr std::int64_t size_of(DType type) { return type == DType::fp32 ? 4 : 2; }
[[nodiscard]] std::string_view to_text(DType type);

}  // namespace trireme
