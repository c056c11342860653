// SPDX-License-Identifier: Apache-2.0
// The pass that trades activations for a second forward.
#include <set>
#include <utility>

#include "trireme/base/error.hpp"
#include "trireme/schedule/passes.hpp"

namespace trireme::schedule {
namespace {

model::Keep keep_of(config::Recompute mode) {
  switch (mode) {
    case config::Recompute::none: return model::Keep::all;
    case config::Recompute::selective: return model::Keep::products;
    case config::Recompute::block: return model::Keep::input;
  }
  throw BugError("insert_recompute: unknown mode");
}

/// What each block keeps.
std::vector<model::Keep> keeps(const model::Model& model, RecomputePolicy policy) {
  std::vector<model::Keep> out;
  std::int64_t layer = 0;
  for (const model::ComputeBlock& block : model.compute_blocks) {
    const bool chosen = model::recomputes(block) && layer++ % policy.every == 0;
    out.push_back(!model::recomputes(block) ? model::Keep::products : chosen ? keep_of(policy.mode) : model::Keep::all);
  }
  return out;
}

}  // namespace

Schedule insert_recompute(Schedule schedule, const model::Model& model, RecomputePolicy policy) {
  const std::vector<model::Keep> keep = keeps(model, policy);
  const auto of = [&](Block block) { return keep[static_cast<std::size_t>(block.value)]; };
  std::set<std::pair<Block, Microbatch>> again;
  std::vector<Op> ops;
  for (Op& op : schedule.ops) {
    if (auto* forward = std::get_if<Forward>(&op)) forward->keep = of(forward->block);
    const auto* backward = std::get_if<Backward>(&op);
    if (backward != nullptr && of(backward->block) == model::Keep::input &&
        again.insert({backward->block, backward->microbatch}).second)
      for (int s = 0; s < static_cast<int>(model[backward->block].stages.size()); ++s)
        ops.emplace_back(Recompute{backward->block, Stage{s}, backward->microbatch});
    ops.push_back(op);
  }
  schedule.ops = std::move(ops);
  return schedule;
}

}  // namespace trireme::schedule
