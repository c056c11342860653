// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "trireme/config/load.hpp"

namespace trireme::planner {

/// Microbatches that are simulated or replayed without a pipeline.
inline constexpr int most_microbatches = 4;

/// Numbers of microbatches that are simulated or replayed instead of `all`. The result for all of them is extrapolated:
/// more + times * (more - fewer).
struct FewMicrobatches {
  int fewer = 0, more = 0;
  double times = 0;  ///< 0: all are few
};
/// A pipeline that is full repeats itself every `mesh.pipeline` microbatches; without one, every microbatch after the
/// third does. rounds: of a pipeline that are simulated, to fill and to drain.
[[nodiscard]] FewMicrobatches few_microbatches(const config::Resolved& mesh, int rounds);

}  // namespace trireme::planner
