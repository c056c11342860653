// SPDX-License-Identifier: Apache-2.0
#include "train/engine/expert_room.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "trireme/base/log.hpp"
#include "trireme/planner/replay.hpp"

namespace trireme::train {

void ExpertRoom::look_at(const Job& job, const executor::StepResult& result, std::int64_t step) {
  if (warned_ || result.expert_rows.empty()) return;
  const auto most = std::ranges::max_element(result.expert_rows, {}, &executor::RowsMoved::received);
  planner::ReplayOptions options = planner::replay_options_of(job.config(), job.resolved());
  const auto rows = [&](planner::Routing routing) {
    options.routing = routing;
    return options.rows_of(job.model(), most->block, most->microbatch).received;
  };
  const std::int64_t balanced = rows(planner::Routing::balanced);
  if (most->received <= rows(planner::Routing::bound)) return;
  warned_ = true;
  log::warning(
      fmt::format("step {}: the experts of {} on {} got {} rows in a microbatch, {:.2f} times the balanced number; the "
                  "plan of memory has room for mesh.expert_room = {:.2f} times. loss.balance_loss evens the load",
                  step + 1, job.model()[most->block].name, job.name_of(job.dp_rank()), most->received,
                  static_cast<double>(most->received) / static_cast<double>(balanced), options.expert_room));
}

}  // namespace trireme::train
