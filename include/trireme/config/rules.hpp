// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "trireme/config/run_config.hpp"

namespace trireme::config {

/// What several keys must satisfy together.
struct Rule {
  /// The keys it looks at, as "section.key". A mistake is reported where the first given one stands; the rule is not
  /// asked when one of them was refused already.
  std::vector<std::string> keys;
  /// What is wrong and what to do about it; nothing when the rule holds.
  std::function<std::optional<std::string>(const RunConfig&)> broken;
};

/// Every rule across keys. They look at a completed configuration.
[[nodiscard]] const std::vector<Rule>& rules();

/// Fills in the defaults that depend on other keys, but not on the number of ranks.
void complete(RunConfig& config);

/// "6 or 8": the divisors of `number` nearest to `wanted` from below and above.
[[nodiscard]] std::string nearest_divisors(std::int64_t number, std::int64_t wanted);

}  // namespace trireme::config
