// SPDX-License-Identifier: Apache-2.0
// The pass that trades activations for a second forward.
#include <optional>
#include <set>
#include <utility>

#include "schedule/passes/append.hpp"
#include "trireme/base/error.hpp"
#include "trireme/model/activations.hpp"
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

/// Tensors saved by each block.
std::vector<model::Keep> keeps(const model::Model& model, RecomputePolicy policy) {
  std::vector<model::Keep> out;
  std::int64_t layer = 0;
  for (const model::ComputeBlock& block : model.compute_blocks) {
    const bool chosen = model::recomputes(block) && layer++ % policy.every == 0;
    out.push_back(!model::recomputes(block) ? model::Keep::products : chosen ? keep_of(policy.mode) : model::Keep::all);
  }
  return out;
}

/// The stages of a block, with their exchanges. Nothing reads the last one's output.
void append_recompute(std::vector<Op>& ops, const model::Model& model, Block block, Microbatch m) {
  const int count = static_cast<int>(model[block].stages.size());
  for (int s = 0; s < count; ++s) {
    append_exchanges(ops, model, block, Stage{s}, m, Place::before_recompute);
    ops.emplace_back(Recompute{block, Stage{s}, m});
    if (s + 1 < count) append_exchanges(ops, model, block, Stage{s}, m, Place::after_recompute);
  }
}

/// The block and microbatch of an op that may be the first of its block's backward.
std::optional<std::pair<Block, Microbatch>> begins_backward(const Op& op) {
  if (const auto* backward = std::get_if<Backward>(&op)) return std::pair{backward->block, backward->microbatch};
  if (const auto* rebuild = std::get_if<Rebuild>(&op)) return std::pair{rebuild->block, rebuild->microbatch};
  if (const auto* exchanged = std::get_if<Exchanged>(&op);
      exchanged != nullptr && (exchanged->phase == Phase::backward || exchanged->phase == Phase::again))
    return std::pair{exchanged->block, exchanged->microbatch};
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
