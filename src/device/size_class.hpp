// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cstddef>

namespace trireme::device {

/// Requests are rounded up to one of these sizes: multiples of 64 up to 512 bytes, then eight to every power of two, so
/// that at most an eighth is lost and sizes such as 3 * 2^k fit exactly.
inline constexpr int log2_linear = 9, log2_steps = 3, log2_largest = 46;
inline constexpr int size_classes = (1 << log2_steps) * (log2_largest - log2_linear + 1);
inline constexpr std::size_t largest_request = std::size_t{1} << log2_largest;
inline constexpr int exact_size = -1;

/// The class of a request of 1 to `largest_request` bytes.
[[nodiscard]] constexpr int size_class(std::size_t bytes) {
  constexpr int steps = 1 << log2_steps;
  if (bytes <= std::size_t{1} << log2_linear) return static_cast<int>((bytes - 1) >> (log2_linear - log2_steps));
  const int octave = std::bit_width(bytes - 1) - 1;  // 2^octave < bytes <= 2^(octave + 1)
  const std::size_t step = (bytes - 1) >> (octave - log2_steps);
  return steps * (octave - log2_linear) + static_cast<int>(step);
}

/// The bytes that a block of the class holds.
[[nodiscard]] constexpr std::size_t class_bytes(int size_class) {
  constexpr int steps = 1 << log2_steps;
  const auto step = static_cast<std::size_t>(size_class % steps) + 1;
  if (size_class < steps) return step << (log2_linear - log2_steps);
  const int octave = size_class / steps - 1 + log2_linear;
  return (std::size_t{1} << octave) + (step << (octave - log2_steps));
}

}  // namespace trireme::device
