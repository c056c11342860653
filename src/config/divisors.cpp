// SPDX-License-Identifier: Apache-2.0
#include <fmt/core.h>

#include <algorithm>

#include "trireme/config/rules.hpp"

namespace trireme::config {

std::int64_t largest_divisor(std::int64_t number, std::int64_t most) {
  std::int64_t largest = 0;
  for (std::int64_t d = 1; d <= most && d <= number / d; ++d) {
    if (number % d != 0) continue;
    largest = std::max(largest, number / d <= most ? number / d : d);
  }
  return largest;
}

std::string nearest_divisors(std::int64_t number, std::int64_t wanted) {
  const std::int64_t below = largest_divisor(number, std::min(number, wanted));
  // Divisors are paired: the least at or above `wanted` corresponds to the largest at or below number / wanted.
  const std::int64_t pair =
      largest_divisor(number, number / std::clamp<std::int64_t>(wanted, 1, std::max<std::int64_t>(number, 1)));
  const std::int64_t over = pair > 0 ? number / pair : 0;
  if (below < 1 || wanted > number || below == over)
    return fmt::format("{}", std::clamp<std::int64_t>(wanted, 1, std::max<std::int64_t>(number, 1)));
  return fmt::format("{} or {}", below, over);
}

}  // namespace trireme::config
