// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>

#include "trireme/config/run_config.hpp"

namespace trireme::planner {

/// A deep model between two shallow ones: what it needs is a + times * (b - a), a and b being what those need.
struct FewLayers {
  std::int64_t a = 0, b = 0;  ///< layers
  std::int64_t times = 0;
};

/// Nothing where layers differ from each other without a period (a cycle of windows has one), or where there are too
/// few of them.
[[nodiscard]] std::optional<FewLayers> few_layers(const config::RunConfig& config);

}  // namespace trireme::planner
