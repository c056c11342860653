// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace trireme::optim {

/// How far ahead streams are asked for: memory answers within the time that this much takes, and no CPU reads so far
/// ahead by itself.
inline constexpr std::int64_t prefetch_distance = 256;  // elements

/// Asks for `count` elements from `prefetch_distance` after `at`; `write` says whether they will be written. Never
/// faults.
template <std::int64_t count, bool write, class Element>
[[gnu::always_inline]] inline void prefetch(const Element* at) {
  constexpr auto line = static_cast<std::int64_t>(64 / sizeof(Element));
  for (std::int64_t i = 0; i < count; i += line) __builtin_prefetch(at + prefetch_distance + i, write ? 1 : 0);
}

}  // namespace trireme::optim
