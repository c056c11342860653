// SPDX-License-Identifier: Apache-2.0
// The pass that keeps optimizer state, and parameters with it, in host memory.
#include <map>
#include <set>

#include "trireme/schedule/passes/passes.hpp"
#include "trireme/shard/layout.hpp"

namespace trireme::schedule {
namespace {

/// The first blocks whose parameters make up `fraction` of all, as a flag by block.
std::vector<bool> chosen(const model::Model& model, double fraction) {
  std::vector<double> before{0};
  for (const model::ParameterBlock& block : model.parameter_blocks)
    before.push_back(before.back() + static_cast<double>(shard::BlockLayout(block, 1).padded()));
  std::vector<bool> out;
  for (std::size_t b = 0; b + 1 < before.size(); ++b) out.push_back(before[b] < fraction * before.back());
  return out;
}

class Inserter {
 public:
  Inserter(const Schedule& schedule, const model::Model& model, OffloadPolicy policy)
      : policy_(policy), chosen_(chosen(model, policy.fraction)) {
    for (std::size_t i = 0; i < schedule.ops.size(); ++i) {
      if (const auto* reduce = std::get_if<ReduceScatter>(&schedule.ops[i])) last_reduce_[reduce->block] = i;
      if (const auto* sum = std::get_if<AllReduce>(&schedule.ops[i])) ++sums_[sum->block];
      if (const auto* sum = std::get_if<AllReduceReplicated>(&schedule.ops[i]))
        (sum->over == Copies::tensor ? copied_ : on_two_ranks_).insert(sum->block);
    }
  }

  std::vector<Op> run(const std::vector<Op>& ops) {
    for (index_ = 0; index_ < ops.size(); ++index_) std::visit(*this, ops[index_]);
    return std::move(out_);
  }

  void operator()(Unshard op) {
    if (policy_.what == config::Offload::parameters && on_host(op.block) && !op.from) {
      op.staged = Slot{};
      out_.emplace_back(Upload{op.block, Slot{}});
    }
    out_.emplace_back(op);
  }
  void operator()(const ReduceScatter& op) {
    if (!on_host(op.block)) return out_.push_back(op);
    const bool again = !sent_.insert(op.block).second;
    out_.emplace_back(ReduceScatter{.block = op.block, .slot = op.slot, .staged = Slot{}});
    // Replicas that sum every reduction do so before the way to the host; once a step, after it.
    const bool every_time = sums_[op.block] > 1;
    if (every_time) out_.emplace_back(AllReduce{.block = op.block, .staged = Slot{}});
    out_.emplace_back(OffloadGradient{op.block, {}, again});
    // Ops after the copies of one block are placed after the next one's reduction, which thus does not wait for them.
    out_.insert(out_.end(), unfinished_.begin(), unfinished_.end());
    unfinished_.clear();
    if (last_reduce_.at(op.block) != index_) return;
    if (sums_[op.block] == 1) unfinished_.emplace_back(AllReduce{.block = op.block});
    if (copied_.contains(op.block)) unfinished_.emplace_back(AllReduceReplicated{op.block});
    if (!on_two_ranks_.contains(op.block)) unfinished_.emplace_back(SumSquares{op.block});
  }
  void operator()(const AllReduce& op) {
    if (!on_host(op.block)) out_.push_back(op);
  }
  void operator()(const AllReduceReplicated& op) {
    if (!on_host(op.block)) return out_.push_back(op);
    if (op.over == Copies::tensor) return;  // after the way to the host
    unfinished_.emplace_back(op);
    unfinished_.emplace_back(SumSquares{op.block});
  }
  void operator()(const ClipNorm& op) {
    out_.insert(out_.end(), unfinished_.begin(), unfinished_.end());
    out_.emplace_back(op);
  }
  void operator()(Update op) {
    op.on_host = on_host(op.block);
    op.beside = op.beside && !op.on_host;
    out_.emplace_back(op);
    if (op.on_host && policy_.what == config::Offload::optimizer) out_.emplace_back(Upload{op.block});
  }
  template <class Other>
  void operator()(const Other& op) {
    out_.emplace_back(op);
  }

 private:
  [[nodiscard]] bool on_host(ParamBlock block) const { return chosen_[static_cast<std::size_t>(block.value)]; }

  OffloadPolicy policy_;
  std::vector<bool> chosen_;
  std::map<ParamBlock, std::size_t> last_reduce_;
  std::map<ParamBlock, int> sums_;     ///< over the replicas, in one step
  std::set<ParamBlock> copied_;        ///< on the tensor axis
  std::set<ParamBlock> on_two_ranks_;  ///< of the pipeline
  std::set<ParamBlock> sent_;
  std::size_t index_ = 0;
  std::vector<Op> unfinished_;
  std::vector<Op> out_;
};

}  // namespace

Schedule insert_offload(Schedule schedule, const model::Model& model, OffloadPolicy policy) {
  if (policy.what == config::Offload::none) return schedule;
  schedule.ops = Inserter(schedule, model, policy).run(schedule.ops);
  return schedule;
}

}  // namespace trireme::schedule
