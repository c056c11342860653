// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#ifdef __SSE2__
#include <emmintrin.h>
#endif

/// Software prefetch and non-temporal stores, for loops over arrays larger than the caches.
namespace trireme {

inline constexpr std::size_t cache_line = 64;  ///< bytes

/// Prefetch distance: covers the memory latency; hardware prefetchers do not read so far ahead.
inline constexpr std::int64_t prefetch_distance = 256;  // elements

/// Prefetches `count` elements from `prefetch_distance` after `at`; `write`: whether they will be written. Never
/// faults.
template <std::int64_t count, bool write, class Element>
[[gnu::always_inline]] inline void prefetch(const Element* at) {
  constexpr auto line = static_cast<std::int64_t>(cache_line / sizeof(Element));
  for (std::int64_t i = 0; i < count; i += line) __builtin_prefetch(at + prefetch_distance + i, write ? 1 : 0);
}

/// Bytes from `at` to the next start of a cache line: 0 to 63.
[[gnu::always_inline]] inline std::size_t to_next_line(const void* at) {
  return -reinterpret_cast<std::uintptr_t>(at) % cache_line;
}

/// Copies a cache line by non-temporal stores: a usual store would first read the overwritten line from memory. from:
/// aligned to 16 bytes; to: the start of a line. Other threads see it after end_of_stream().
[[gnu::always_inline]] inline void stream_line(const void* from, void* to) {
#ifdef __SSE2__
  const auto* source = static_cast<const __m128i*>(from);
  auto* at = static_cast<__m128i*>(to);
  for (int i = 0; i < 4; ++i) _mm_stream_si128(at + i, _mm_load_si128(source + i));
#else
  std::memcpy(to, from, cache_line);
#endif
}

/// Zeroes a cache line by non-temporal stores, as stream_line.
[[gnu::always_inline]] inline void stream_zeros(void* to) {
#ifdef __SSE2__
  auto* at = static_cast<__m128i*>(to);
  for (int i = 0; i < 4; ++i) _mm_stream_si128(at + i, _mm_setzero_si128());
#else
  std::memset(to, 0, cache_line);
#endif
}

inline void end_of_stream() {
#ifdef __SSE2__
  _mm_sfence();
#endif
}

/// Calls line(at) for each whole cache line in [to, to + bytes), and edge(begin, bytes) for the bytes before the first
/// and after the last of them.
template <class Edge, class Line>
[[gnu::always_inline]] inline void in_lines(const std::byte* to, std::size_t bytes, const Edge& edge,
                                            const Line& line) {
  const std::size_t head = std::min(bytes, to_next_line(to));
  const std::size_t end = head + (bytes - head) / cache_line * cache_line;
  if (head > 0) edge(0, head);
  for (std::size_t at = head; at < end; at += cache_line) line(at);
  end_of_stream();
  if (end < bytes) edge(end, bytes - end);
}

/// memcpy by non-temporal stores, for data that this core will not read soon; other threads see it afterwards.
inline void stream_copy(const std::byte* from, std::byte* to, std::size_t bytes) {
  in_lines(
      to, bytes, [=](std::size_t at, std::size_t n) { std::memcpy(to + at, from + at, n); },
      [=](std::size_t at) {
        prefetch<cache_line / sizeof(float), false>(reinterpret_cast<const float*>(from + at));
        alignas(16) std::byte line[cache_line];
        std::memcpy(line, from + at, cache_line);
        stream_line(line, to + at);
      });
}

/// memset(to, 0, bytes), as stream_copy.
inline void stream_zeros(std::byte* to, std::size_t bytes) {
  in_lines(
      to, bytes, [=](std::size_t at, std::size_t n) { std::memset(to + at, 0, n); },
      [=](std::size_t at) { stream_zeros(to + at); });
}

}  // namespace trireme
