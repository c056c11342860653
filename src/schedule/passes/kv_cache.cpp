// SPDX-License-Identifier: Apache-2.0
// The pass that makes a forward of generation one of the tokens that were added.
#include "trireme/model/kv_cache.hpp"

#include <algorithm>

#include "trireme/base/error.hpp"
#include "trireme/schedule/access.hpp"
#include "trireme/schedule/passes/passes.hpp"

namespace trireme::schedule {

Schedule insert_kv_cache(Schedule schedule, const model::Model& model) {
  for (Op& op : schedule.ops) {
    auto* const forward = std::get_if<Forward>(&op);
    if (forward == nullptr) continue;
    const std::vector<model::Stage>& stages = model[forward->block].stages;
    const auto divided = [](const model::Stage& stage) {
      return stage.enter == model::Exchange::gather_keys || stage.enter == model::Exchange::to_heads;
    };
    invariant(std::ranges::none_of(stages, divided), "sequences that are divided have no key/value cache");
    const StageRange range = stages_of(model[forward->block], forward->stage);
    if (std::any_of(stages.begin() + range.first, stages.begin() + range.last,
                    [&](const model::Stage& stage) { return model::has_kv_cache(stage.kind, model.held); }))
      forward->keep = model::Keep::kv_cache;
  }
  return schedule;
}

}  // namespace trireme::schedule
