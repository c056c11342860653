// SPDX-License-Identifier: Apache-2.0
#include "trireme/executor/program.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "trireme/base/error.hpp"
#include "trireme/schedule/access.hpp"
#include "trireme/schedule/concerns.hpp"
#include "trireme/schedule/text.hpp"

namespace trireme::executor {
namespace {

/// Nothing: the block's shard is used in place.
using Slots = std::map<ParamBlock, std::optional<schedule::Slot>>;

/// Walks the ops, following which slot holds each parameter block.
class Resolver {
 public:
  Resolver(const model::Model& model, store::ParameterStore& store) : model_(model), store_(store) {}

  Operands operator()(const schedule::Unshard& op) {
    slots_[op.block] = schedule::slot_of(op);
    return {};
  }
  Operands operator()(const schedule::Reshard& op) {
    const std::optional<schedule::Slot> slot = slots_.at(op.block);
    slots_.erase(op.block);
    return {.freed = slot};
  }
  Operands operator()(const schedule::Forward& op) { return stages(op, op.stage, {}); }
  Operands operator()(const schedule::Recompute& op) { return stages(op, op.stage, {}); }
  Operands operator()(const schedule::Rebuild& op) { return stages(op, op.segment, {}); }
  Operands operator()(const schedule::Backward& op) {
    Operands out = stages(op, op.stage, op.gradients);
    std::reverse(out.stages.begin(), out.stages.end());
    return out;
  }
  template <class Other>
  requires(!schedule::of_stage<Other>) Operands operator()(const Other&) { return {}; }

 private:
  template <class Compute>
  Operands stages(const Compute& op, std::optional<Stage> only, const std::vector<schedule::GradientTarget>& targets) {
    const auto read = schedule::parameters_read(schedule::Op{op}, model_);
    const model::ComputeBlock& block = model_[op.block];
    const schedule::StageRange range = schedule::stages_of(block, only);
    Operands out;
    for (int s = range.first; s < range.last; ++s) {
      const model::Stage& stage = block.stages[static_cast<std::size_t>(s)];
      StageOperands operands{.stage = Stage{s}, .spec = &stage, .parameters = {}, .gradients = {}};
      for (const model::ParamRef ref : stage.parameters) {
        const bool reads = std::find(read.begin(), read.end(), ref.block) != read.end();
        operands.parameters.push_back(reads ? parameter(ref) : at::Tensor{});
        for (const schedule::GradientTarget& target : targets)
          if (target.block == ref.block)
            operands.gradients.push_back(
                {target.in_place ? store_.gradient_view(ref) : store_.gradient_view(target.slot, ref), target.add});
      }
      out.stages.push_back(std::move(operands));
    }
    return out;
  }

  [[nodiscard]] at::Tensor parameter(model::ParamRef ref) const {
    const std::optional<schedule::Slot> slot = slots_.at(ref.block);
    return slot ? store_.parameter_view(*slot, ref) : store_.parameter_view(ref);
  }

  const model::Model& model_;
  store::ParameterStore& store_;
  Slots slots_;
};

/// Whether op `i` is the input part of a backward whose weight part does not follow at once: its tensors are kept then.
/// For attention's output the gradient of the input is exchanged first.
bool weights_wait(const schedule::Schedule& schedule, const model::Model& model, std::size_t i) {
  const auto* input = std::get_if<schedule::Backward>(&schedule.ops[i]);
  if (input == nullptr || input->part != schedule::BackwardPart::input) return false;
  const model::Stage* const partitioned = schedule::partitioned_stage(model, input->block, input->stage);
  if (partitioned == nullptr || partitioned->enter == model::Exchange::to_tokens ||
      model::is_of_experts(partitioned->kind))
    return true;
  for (++i; i < schedule.ops.size(); ++i)
    if (const auto* next = std::get_if<schedule::Backward>(&schedule.ops[i]))
      return next->part != schedule::BackwardPart::weight || next->block != input->block ||
             next->stage != input->stage || next->microbatch != input->microbatch;
  return false;
}

}  // namespace

Program resolve(const schedule::Schedule& schedule, const model::Model& model, store::ParameterStore& store) {
  Resolver resolver(model, store);
  Program program;
  for (const schedule::Op& op : schedule.ops) program.push_back(std::visit(resolver, op));
  for (std::size_t i = 0; i < program.size(); ++i) program[i].weights_wait = weights_wait(schedule, model, i);
  return program;
}

}  // namespace trireme::executor
