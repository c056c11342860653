// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <cstring>

#ifdef __SSE2__
#include <emmintrin.h>
#endif

namespace trireme::optim {

/// One cache line of two-byte elements.
using Line = std::array<std::uint16_t, 32>;

/// Elements from `at` to the next start of a line: 0 to 31.
[[gnu::always_inline]] inline std::int64_t to_next_line(const std::uint16_t* at) {
  return static_cast<std::int64_t>(-reinterpret_cast<std::uintptr_t>(at) % sizeof(Line) / sizeof(std::uint16_t));
}

/// Writes a whole line at `to`, the start of one, past the caches: a usual store would read from memory what it is
/// about to overwrite. Other threads see it after end_of_stream().
[[gnu::always_inline]] inline void stream(const Line& line, void* to) {
#ifdef __SSE2__
  const auto* from = reinterpret_cast<const __m128i*>(line.data());
  auto* at = static_cast<__m128i*>(to);
  for (int i = 0; i < 4; ++i) _mm_stream_si128(at + i, _mm_load_si128(from + i));
#else
  std::memcpy(to, line.data(), sizeof line);
#endif
}

inline void end_of_stream() {
#ifdef __SSE2__
  _mm_sfence();
#endif
}

}  // namespace trireme::optim
