// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <span>

#include "trireme/base/error.hpp"
#include "trireme/schedule/pipeline/table.hpp"

/// Numbers of activations kept by the schedules of pipelines, by formulas and counted.
namespace trireme::schedule::testing {

/// Chunk activations that rank `rank` holds at once at most, from F until W or B, with F = I = W.
[[nodiscard]] inline int most_in_flight(const Pipeline& p, int rank) {
  const auto limit = [&] {
    switch (p.kind) {
      case PipelineKind::gpipe: return p.microbatches;
      case PipelineKind::one_f_one_b: return p.ranks - rank;
      case PipelineKind::interleaved: return 2 * (p.ranks - 1 - rank) + (p.chunks - 1) * p.ranks + 1;
      case PipelineKind::zb_h1: return p.ranks;
      case PipelineKind::zbv: return 2 * p.ranks;
      case PipelineKind::dualpipev: return 2 * p.ranks + 1;
    }
    throw BugError("most_in_flight: unknown schedule");
  };
  return std::min(limit(), p.chunks * p.microbatches);
}

/// The same, counted in a list of actions.
[[nodiscard]] inline int count_in_flight(std::span<const Action> actions) {
  int now = 0, most = 0;
  for (const Action& action : actions) {
    if (action.part == ActionPart::forward) most = std::max(most, ++now);
    if (action.part == ActionPart::backward || action.part == ActionPart::weight) --now;
  }
  return most;
}

}  // namespace trireme::schedule::testing
