// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>

#include "trireme/config/run_config.hpp"

namespace trireme::planner {

/// A deep model extrapolated from two shallow ones: a + times * (b - a).
struct FewLayers {
  std::int64_t a = 0, b = 0;  ///< layers
  std::int64_t times = 0;
};

/// Nothing if layers differ without a period (a cycle of
/// windows has one), or if there are too few of them.
[[nodiscard]] std::optional<FewLayers> few_layers(const config::RunConfig& config);

}  // namespace trireme::planner
