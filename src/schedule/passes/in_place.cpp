// SPDX-License-Identifier: Apache-2.0
// The pass that leaves out copies between a shard and a slot where one rank gathers the block.
#include <map>
#include <set>
#include <utility>

#include "trireme/schedule/passes/passes.hpp"

namespace trireme::schedule {
namespace {

class Aliases {
 public:
  Aliases(const Schedule& schedule, const model::Model& model, const InPlacePolicy& policy) {
    for (int b = 0; b < model.param_blocks(); ++b) {
      const model::ParameterBlock& block = model[ParamBlock{b}];
      if (*policy.shards * (block.of_experts ? model.part.ranks : 1) != block.parts) continue;
      parameters_.insert(ParamBlock{b});
      if (policy.gradients) gradients_.insert(ParamBlock{b});
    }
    std::set<ParamBlock> reduced;
    for (std::size_t i = 0; i < schedule.ops.size(); ++i) {
      if (const auto* unshard = std::get_if<Unshard>(&schedule.ops[i]); unshard != nullptr && unshard->staged)
        parameters_.erase(unshard->block);
      if (const auto* reshard = std::get_if<Reshard>(&schedule.ops[i])) last_reshard_[reshard->block] = i;
      const auto* reduce = std::get_if<ReduceScatter>(&schedule.ops[i]);
      if (reduce == nullptr) continue;
      const bool again = !reduced.insert(reduce->block).second;
      if (again || reduce->staged) gradients_.erase(reduce->block);
    }
  }

  std::vector<Op> run(const std::vector<Op>& ops) {
    for (index_ = 0; index_ < ops.size(); ++index_) std::visit(*this, ops[index_]);
    return std::move(out_);
  }

  void operator()(Unshard op) {
    op.in_place = parameters_.contains(op.block);
    if (!op.in_place || unsharded_.insert(op.block).second) out_.emplace_back(op);
  }
  void operator()(const Reshard& op) {
    if (!parameters_.contains(op.block) || last_reshard_.at(op.block) == index_) out_.emplace_back(op);
  }
  void operator()(Backward op) {
    for (GradientTarget& target : op.gradients) target.in_place = gradients_.contains(target.block);
    out_.emplace_back(std::move(op));
  }
  void operator()(ReduceScatter op) {
    op.in_place = gradients_.contains(op.block);
    out_.emplace_back(op);
  }
  template <class Other>
  void operator()(const Other& op) {
    out_.emplace_back(op);
  }

 private:
  std::set<ParamBlock> parameters_, gradients_;  ///< whose copies are left out
  std::map<ParamBlock, std::size_t> last_reshard_;
  std::set<ParamBlock> unsharded_;
  std::size_t index_ = 0;
  std::vector<Op> out_;
};

}  // namespace

Schedule insert_in_place(Schedule schedule, const model::Model& model, const InPlacePolicy& policy) {
  if (!policy.shards) return schedule;
  schedule.ops = Aliases(schedule, model, policy).run(schedule.ops);
  return schedule;
}

}  // namespace trireme::schedule
