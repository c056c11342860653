// SPDX-License-Identifier: Apache-2.0
// The passes that place gradient reduction, clipping and the update.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "trireme/base/error.hpp"
#include "trireme/schedule/access.hpp"
#include "trireme/schedule/passes/passes.hpp"

namespace trireme::schedule {
namespace {

/// The parameters whose gradients hold something since the last reduction. Experts are many: a flag each.
class Written {
 public:
  explicit Written(const model::Model& model) : flags_(static_cast<std::size_t>(model.param_blocks())) {
    for (int b = 0; b < model.param_blocks(); ++b)
      of(ParamBlock{b}).resize(model[ParamBlock{b}].parameters.size(), false);
  }
  /// Whether it was before.
  bool insert(const model::ParamRef& parameter) {
    auto flag = of(parameter.block).begin() + parameter.index;
    return std::exchange(*flag, true);
  }
  void erase(ParamBlock block) { std::fill(of(block).begin(), of(block).end(), false); }

 private:
  [[nodiscard]] std::vector<char>& of(ParamBlock block) { return flags_[static_cast<std::size_t>(block.value)]; }
  std::vector<std::vector<char>> flags_;
};

/// Index of the last op of each microbatch that writes each parameter block's gradient.
std::map<std::pair<ParamBlock, Microbatch>, std::size_t> last_writers(const Schedule& schedule,
                                                                      const model::Model& model) {
  std::map<std::pair<ParamBlock, Microbatch>, std::size_t> last;
  for (std::size_t i = 0; i < schedule.ops.size(); ++i)
    if (const auto* backward = std::get_if<Backward>(&schedule.ops[i]))
      for (const ParamBlock block : gradients_written(schedule.ops[i], model)) last[{block, backward->microbatch}] = i;
  return last;
}

/// Names the targets of a backward: the first writer since the last reduction overwrites, later ones add.
void set_targets(Backward& op, const model::Model& model, Written& written) {
  std::map<ParamBlock, bool> add;
  const model::ComputeBlock& block = model[op.block];
  const StageRange range = stages_of(block, op.stage);
  for (int s = range.first; s < range.last; ++s)
    for (const model::ParamRef& parameter : block.stages[static_cast<std::size_t>(s)].parameters) {
      const bool again = written.insert(parameter);
      const auto [found, fresh] = add.emplace(parameter.block, again);
      if (!fresh && found->second != again)
        invariant(false, fmt::format("a backward of {} would overwrite one gradient of {} and add to another",
                                     block.name, model[parameter.block].name));
    }
  op.gradients.clear();
  for (const ParamBlock block : gradients_written(Op{op}, model)) op.gradients.push_back({block, {}, add.at(block)});
}

}  // namespace

Schedule insert_reduction(Schedule schedule, const model::Model& model, config::SyncPolicy policy, int replicas) {
  invariant(policy != config::SyncPolicy::automatic, "an automatic policy is resolved before the schedule is built");
  const bool all = policy == config::SyncPolicy::immediate_all;
  const auto last = last_writers(schedule, model);
  std::map<ParamBlock, std::size_t> final_writer;  // of the step, in any microbatch
  for (const auto& [key, at] : last) final_writer[key.first] = std::max(final_writer[key.first], at);
  Written written(model);
  std::set<ParamBlock> reduced;
  std::vector<Op> ops;
  for (std::size_t i = 0; i < schedule.ops.size(); ++i) {
    Op op = schedule.ops[i];
    auto* backward = std::get_if<Backward>(&op);
    if (backward != nullptr && backward->part == BackwardPart::input) backward = nullptr;
    if (backward != nullptr) set_targets(*backward, model, written);
    ops.push_back(op);
    if (backward == nullptr) continue;
    for (const ParamBlock block : gradients_written(op, model)) {
      const bool final = final_writer.at(block) == i;
      if (!final && policy == config::SyncPolicy::deferred) continue;
      if (last.at({block, backward->microbatch}) != i) continue;
      const bool again = !reduced.insert(block).second;
      const bool partial = again && all && replicas > 1;
      ops.emplace_back(ReduceScatter{.block = block, .slot = {}, .add = again && !partial, .partial = partial});
      written.erase(block);
      if (replicas > 1 && (final || all)) ops.emplace_back(AllReduce{.block = block, .partial = partial});
      if (final && model::has_replicated_gradients(model[block])) ops.emplace_back(AllReduceReplicated{block});
    }
  }
  // Behind all that other ranks wait for: both holders call it.
  for (const auto& [block, at] : final_writer)
    if (model[block].on_two_pipeline_ranks) ops.emplace_back(AllReduceReplicated{block, Copies::pipeline});
  schedule.ops = std::move(ops);
  return schedule;
}

Schedule insert_update(Schedule schedule, const model::Model& model, bool beside) {
  schedule.ops.emplace_back(ClipNorm{});
  for (int b = 0; b < model.param_blocks(); ++b)
    schedule.ops.emplace_back(Update{.block = ParamBlock{b}, .beside = beside});
  return schedule;
}

}  // namespace trireme::schedule
