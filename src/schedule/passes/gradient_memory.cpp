// SPDX-License-Identifier: Apache-2.0
// The pass that allocates and frees gradient shards.
#include <algorithm>
#include <set>
#include <utility>

#include "trireme/schedule/access.hpp"
#include "trireme/schedule/passes/passes.hpp"

namespace trireme::schedule {
namespace {

/// Blocks whose reduced gradients stay on the device.
std::set<ParamBlock> on_device(const Schedule& schedule, const model::Model& model) {
  std::set<ParamBlock> blocks;
  for (int b = 0; b < model.param_blocks(); ++b) blocks.insert(ParamBlock{b});
  for (const Op& op : schedule.ops)
    if (const auto* offload = std::get_if<OffloadGradient>(&op)) blocks.erase(offload->block);
  return blocks;
}

/// Blocks whose shards the op writes.
std::vector<ParamBlock> shards_written(const Op& op) {
  std::vector<ParamBlock> blocks;
  if (const auto* reduce = std::get_if<ReduceScatter>(&op); reduce != nullptr && !reduce->staged && !reduce->partial)
    blocks.push_back(reduce->block);
  if (const auto* backward = std::get_if<Backward>(&op))
    for (const GradientTarget& target : backward->gradients)
      if (target.in_place) blocks.push_back(target.block);
  return blocks;
}

}  // namespace

Schedule insert_gradient_memory(Schedule schedule, const model::Model& model, bool transient) {
  if (!transient) return schedule;
  const std::set<ParamBlock> blocks = on_device(schedule, model);
  std::set<ParamBlock> beside;  // freed before the first op that reads them
  for (const Op& op : schedule.ops)
    if (const auto* update = std::get_if<Update>(&op); update != nullptr && update->beside)
      beside.insert(update->block);
  std::set<ParamBlock> allocated, freed;
  std::vector<Op> ops;
  const auto free = [&](ParamBlock block) {
    if (blocks.contains(block) && freed.insert(block).second) ops.emplace_back(FreeGradient{block});
  };
  for (const Op& op : schedule.ops) {
    for (const ParamBlock block : parameters_read(op, model))
      if (beside.contains(block)) free(block);
    for (const ParamBlock block : shards_written(op)) {
      if (!blocks.contains(block) || !allocated.insert(block).second) continue;
      if (beside.contains(block)) free(block);  // nothing has read it
      ops.emplace_back(AllocateGradient{block});
    }
    ops.push_back(op);
    if (const auto* update = std::get_if<Update>(&op); update != nullptr && !update->beside) free(update->block);
  }
  schedule.ops = std::move(ops);
  return schedule;
}

}  // namespace trireme::schedule
