// SPDX-License-Identifier: Apache-2.0
// The pass that trades activations for a second forward.
#include <optional>
#include <set>
#include <utility>

#include "schedule/passes/append.hpp"
#include "trireme/base/error.hpp"
#include "trireme/schedule/passes/passes.hpp"

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

/// The stages of a block, with what stands between them; nobody reads the last one's output, nor what experts made of
/// rows: merge saves nothing.
void append_recompute(std::vector<Op>& ops, const model::Model& model, Block block, Microbatch m) {
  const std::vector<model::Stage>& stages = model[block].stages;
  for (int s = 0; s < static_cast<int>(stages.size()); ++s) {
    const model::Stage& stage = stages[static_cast<std::size_t>(s)];
    if (stage.enter == model::Join::gather_sequence)
      ops.emplace_back(GatherSequence{block, Stage{s}, m, Phase::recompute});
    if (stage.enter == model::Join::all_reduce_statistics)
      ops.emplace_back(AllReduceStatistics{block, Stage{s}, m, Phase::recompute});
    append_context_join(ops, model, block, Stage{s}, m, Phase::recompute);
    if (stage.enter == model::Join::dispatch) ops.emplace_back(Dispatch{block, Stage{s}, m, Phase::recompute});
    ops.emplace_back(Recompute{block, Stage{s}, m});
    if (s + 1 == static_cast<int>(stages.size())) continue;
    if (stage.leave == model::Join::scatter_sequence)
      ops.emplace_back(ScatterSequence{block, Stage{s}, m, Phase::recompute});
    if (stage.leave == model::Join::all_reduce_activation)
      ops.emplace_back(AllReduceActivation{block, Stage{s}, m, Phase::recompute});
  }
}

/// Whether an op is the first of its block's backward: a gather may stand before it.
std::optional<std::pair<Block, Microbatch>> begins_backward(const Op& op) {
  if (const auto* backward = std::get_if<Backward>(&op)) return std::pair{backward->block, backward->microbatch};
  if (const auto* gather = std::get_if<GatherSequence>(&op); gather != nullptr && gather->phase == Phase::backward)
    return std::pair{gather->block, gather->microbatch};
  if (const auto* keys = std::get_if<GatherKeys>(&op); keys != nullptr && keys->phase == Phase::again)
    return std::pair{keys->block, keys->microbatch};
  if (const auto* sum = std::get_if<SumLoads>(&op)) return std::pair{sum->block, sum->microbatch};
  if (const auto* again = std::get_if<RecomputeNorm>(&op)) return std::pair{again->block, again->microbatch};
  return std::nullopt;
}

}  // namespace

Schedule insert_recompute(Schedule schedule, const model::Model& model, RecomputePolicy policy) {
  const std::vector<model::Keep> keep = keeps(model, policy);
  const auto of = [&](Block block) { return keep[static_cast<std::size_t>(block.value)]; };
  std::set<std::pair<Block, Microbatch>> again;
  std::vector<Op> ops;
  for (Op& op : schedule.ops) {
    if (auto* forward = std::get_if<Forward>(&op)) forward->keep = of(forward->block);
    const auto begins = begins_backward(op);
    if (begins && of(begins->first) == model::Keep::input && again.insert(*begins).second)
      append_recompute(ops, model, begins->first, begins->second);
    ops.push_back(op);
  }
  schedule.ops = std::move(ops);
  return schedule;
}

}  // namespace trireme::schedule
