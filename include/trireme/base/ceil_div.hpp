// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace trireme {

/// a / b, rounded up; of a negative a something from a / b to 0. b: positive.
[[nodiscard]] constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

}  // namespace trireme
