// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "trireme/planner/time/costs.hpp"

namespace trireme::planner {

inline double f64(std::int64_t value) { return static_cast<double>(value); }

/// Phases of a stage. recompute: the forward without the block's last product.
enum class Phase : std::uint8_t { forward, recompute, backward, backward_input, backward_weight };

struct StageContext {
  const Costs::Of& of;
  const Machine& machine;
  const Software& software;
};

/// Seconds of one stage, or of all stages of a block: products, attention, kernels that move bytes; at least the
/// host's time to launch them.
[[nodiscard]] double stage_seconds(const StageContext& context, Block block, const std::optional<Stage>& stage,
                                   Phase phase, std::vector<Term>* terms);

}  // namespace trireme::planner
