// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

namespace trireme::planner {

/// Sizes of relative errors.
struct ErrorStats {
  double median = 0, p90 = 0, largest = 0;
};
[[nodiscard]] inline ErrorStats error_stats(std::vector<double> errors) {
  if (errors.empty()) return {};
  for (double& error : errors) error = std::abs(error);
  std::sort(errors.begin(), errors.end());
  const auto at = [&](double part) {
    return errors[static_cast<std::size_t>(part * static_cast<double>(errors.size() - 1) + 0.5)];
  };
  return {.median = at(0.5), .p90 = at(0.9), .largest = errors.back()};
}

}  // namespace trireme::planner
