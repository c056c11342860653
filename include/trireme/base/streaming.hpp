// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#ifdef __SSE2__
#include <emmintrin.h>
#endif

/// Writes past the caches: a usual store of much data would first read from memory what it is about to overwrite.
namespace trireme {

inline constexpr std::size_t cache_line = 64;  ///< bytes

/// Bytes from `at` to the next start of a line: 0 to 63.
[[gnu::always_inline]] inline std::size_t to_next_line(const void* at) {
  return -reinterpret_cast<std::uintptr_t>(at) % cache_line;
}

/// Copies a line. from: aligned to 16 bytes; to: the start of a line. Other threads see it after end_of_stream().
[[gnu::always_inline]] inline void stream_line(const void* from, void* to) {
#ifdef __SSE2__
  const auto* source = static_cast<const __m128i*>(from);
  auto* at = static_cast<__m128i*>(to);
  for (int i = 0; i < 4; ++i) _mm_stream_si128(at + i, _mm_load_si128(source + i));
#else
  std::memcpy(to, from, cache_line);
#endif
}

inline void end_of_stream() {
#ifdef __SSE2__
  _mm_sfence();
#endif
}

}  // namespace trireme
