// SPDX-License-Identifier: Apache-2.0
#include "trireme/schedule/verify/verify.hpp"

#include <fmt/format.h>

#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include "schedule/verify/host_check.hpp"
#include "trireme/schedule/concerns.hpp"
#include "trireme/schedule/text.hpp"

namespace trireme::schedule {
namespace {

/// One backward's share of one parameter's gradient.
using Contribution = std::tuple<int, int, int>;  // compute block, stage, microbatch
using Content = std::multiset<Contribution>;
using Parameter = std::pair<ParamBlock, int>;

/// Tensors that exist for a stage: its block's input only, those saved for backward, those pending for its weights.
enum class Kept { input, saved, pending };

/// Progress of the matrices in a slot.
enum class OfMatrices { prepared, gathered, orthogonalized, back };
struct HeldMatrices {
  Matrices of{};
  OfMatrices at = OfMatrices::back;
};

/// Replays the ops and notes everything that is wrong.
class Replay {
 public:
  Replay(const Schedule& schedule, const model::Model& model, int replicas, Complete complete)
      : schedule_(schedule),
        model_(model),
        replicas_(replicas),
        complete_(complete),
        host_(schedule, model, replicas, complete.slots) {}

  std::vector<std::string> run() {
    for (index_ = 0; index_ < schedule_.ops.size(); ++index_) {
      parameters();
      std::visit(*this, schedule_.ops[index_]);
      for (const std::string& what : std::visit(host_, schedule_.ops[index_])) complain(what);
    }
    at_end();
    return std::move(wrong_);
  }

  void operator()(const Unshard& op) {
    if (resident_.contains(op.block)) complain("gathers a block that is unsharded already");
    if (complete_.slots && !op.in_place)
      for (const auto& [block, slot] : resident_)
        if (slot == op.slot) complain(fmt::format("overwrites the slot that holds {}", name(block)));
    if (updated_.contains(op.block)) complain("gathers a block after its update: the next step does that");
    if (op.from) {
      const auto copy = group_copy_.find(op.block);
      if (copy == group_copy_.end() || copy->second != *op.from)
        complain(fmt::format("gathers from copies over groups of {} that no reshard has left", *op.from));
    }
    resident_[op.block] = slot_of(op);
  }
  void operator()(const Reshard& op) {
    if (resident_.erase(op.block) == 0) complain("reshards a block that is not unsharded");
    if (op.to) group_copy_[op.block] = *op.to;
  }
  void operator()(const Forward& op) {
    each_stage(op, [&](const std::tuple<int, int, int>& key) {
      const auto what = op.keep == model::Keep::input || op.keep == model::Keep::kv_cache ? Kept::input : Kept::saved;
      if (!saved_.emplace(key, what).second) complain("runs a forward twice before its backward");
    });
  }
  void operator()(const Recompute& op) {
    for (const std::string& what : host_.reads(op.block, op.microbatch)) complain(what);
    each_stage(op, [&](const std::tuple<int, int, int>& key) {
      const auto held = saved_.find(key);
      if (held == saved_.end() || held->second != Kept::input)
        complain("has no forward before it that kept its block's input only");
      else
        held->second = Kept::saved;
      auto [block, stage, microbatch] = key;
      if (stage > 0 && saved_[{block, stage - 1, microbatch}] != Kept::saved)
        complain("comes before the recompute of the stage whose output it reads");
    });
  }
  void operator()(const Backward& op) {
    for (const std::string& what : host_.reads(op.block, op.microbatch)) complain(what);
    each_stage(op, [&](const std::tuple<int, int, int>& key) {
      const auto held = saved_.find(key);
      if (held == saved_.end())
        complain("has no forward before it, or ran before");
      else if (held->second == Kept::input)
        complain("reads what its forward did not keep and nothing has computed again");
      else if ((held->second == Kept::pending) != (op.part == BackwardPart::weight))
        complain(op.part == BackwardPart::weight ? "has no backward_input before it"
                                                 : "comes after its backward_input");
      if (op.part == BackwardPart::input) {
        saved_[key] = Kept::pending;
        return;
      }
      if (held != saved_.end()) saved_.erase(held);
      if (complete_.reduction) contribute(op, key);
    });
  }
  void operator()(const ReduceScatter& op) {
    if (norm_seen_) complain("comes after clip_norm, which misses it");
    if (reduced_over_replicas_.contains(op.block) && !op.partial && !op.staged)
      complain("comes after the block's all_reduce, which misses it");
    if (summed_.contains({op.block, Copies::tensor}) || summed_.contains({op.block, Copies::pipeline}))
      complain("comes after the block's all_reduce_replicated, which misses it");
    if (op.partial && std::exchange(partial_, op.block))
      complain("writes over a partial gradient that was not summed yet");
    if (op.add && op.partial) complain("cannot both add and leave a partial gradient");
    bool any = false;
    for_parameters(op.block, [&](const Parameter& p) {
      Content& shard = shard_[p];
      if (!op.add && !op.partial && !op.staged && !shard.empty())
        complain(fmt::format("overwrites gradients of {} reduced before", name(op.block)));
      any = any || !unreduced_[p].empty();
      shard.merge(unreduced_[p]);
      unreduced_[p].clear();
    });
    if (!any) complain("reduces a gradient that nothing has written since it was last reduced");
    if (op.add && !has_shard_.contains(op.block))
      complain("adds to a gradient shard that was never written in this step");
    has_shard_.insert(op.block);
    if (complete_.slots) {
      const auto held = gradient_slot_.find(op.block);
      if (held == gradient_slot_.end() || held->second != slot_of(op))
        complain("reduces from a slot that does not hold the block's gradient");
      gradient_slot_.erase(op.block);
    }
  }
  void operator()(const AllReduce& op) {
    if (replicas_ == 1) complain("sums over one replica");
    if (norm_seen_) complain("comes after clip_norm, which misses it");
    if (!has_shard_.contains(op.block)) complain("comes before the block's reduce_scatter");
    if (op.partial && std::exchange(partial_, std::nullopt) != op.block)
      complain("sums a partial gradient that is not the block's");
    if (!op.partial && !reduced_over_replicas_.insert(op.block).second && !op.staged)
      complain("sums the replicas a second time");
  }
  void operator()(const AllReduceReplicated& op) {
    if (norm_seen_) complain("comes after clip_norm, which misses it");
    if (!has_shard_.contains(op.block)) complain("comes before the block's reduce_scatter");
    if (replicas_ > 1 && !reduced_over_replicas_.contains(op.block)) complain("comes before the block's all_reduce");
    if (!summed_.insert({op.block, op.over}).second) complain("sums the copies a second time");
    if (op.over == Copies::pipeline && !model_[op.block].on_two_pipeline_ranks)
      complain("sums a block that one pipeline rank holds");
    if (op.over == Copies::tensor && summed_.contains({op.block, Copies::pipeline}))
      complain("comes after the sum over the pipeline ranks, which misses it");
  }
  void operator()(const Rebuild& op) {
    for (const std::string& what : host_.reads(op.block, op.microbatch)) complain(what);
    if (!saved_.contains({op.block.value, op.segment.value, op.microbatch.value}))
      complain("has no forward before it, or comes after its backward");
  }
  void operator()(const Exchanged&) {}  // verify_tensor
  void operator()(const ClipNorm&) {
    if (norm_seen_) complain("comes twice");
    norm_seen_ = true;
    if (partial_) complain(fmt::format("the partial gradient of {} was not summed over the replicas", name(*partial_)));
    expect_reduced();
  }
  void operator()(const Update& op) {
    if (!norm_seen_) complain("comes before clip_norm");
    if (!updated_.insert(op.block).second) complain("updates a block twice");
    if (resident_.contains(op.block)) complain("updates a block that is still unsharded: the copy would be stale");
    if (!op.matrices) return;
    const auto held = matrices_.find(*op.matrices);
    if (held == matrices_.end() || op.block < held->second.of.first || held->second.of.last < op.block)
      complain("updates with matrices of another window");
    else if (held->second.at != OfMatrices::back)
      complain("comes before the matrices of its window are orthogonalized and back");
  }
  void operator()(const PrepareMatrices& op) {
    if (!norm_seen_) complain("comes before clip_norm");
    const auto [held, fresh] = matrices_.emplace(op.of.slot, HeldMatrices{});
    if (!fresh && held->second.at != OfMatrices::back)
      complain(fmt::format("overwrites the matrices of {}, which are not updated", name(held->second.of.first)));
    if (op.of.last < op.of.first) complain("has its last block before its first one");
    for (ParamBlock block = op.of.first; block <= op.of.last; ++block.value) {
      if (updated_.contains(block)) complain(fmt::format("comes after the update of {}", name(block)));
      if (!prepared_.insert(block).second) complain(fmt::format("prepares {} twice", name(block)));
    }
    for (std::size_t i = index_ + 1; !fresh && i < schedule_.ops.size(); ++i)
      if (const auto* update = std::get_if<Update>(&schedule_.ops[i]);
          update != nullptr && update->matrices == op.of.slot && held->second.of.first <= update->block &&
          update->block <= held->second.of.last)
        complain(fmt::format("overwrites the matrices of {}, which is not updated", name(update->block)));
    held->second = {op.of, OfMatrices::prepared};
  }
  void operator()(const GatherMatrices& op) { advance(op.of, OfMatrices::prepared, OfMatrices::gathered); }
  void operator()(const Orthogonalize& op) {
    if (op.in_place)
      advance(op.of, OfMatrices::prepared, OfMatrices::back);
    else
      advance(op.of, OfMatrices::gathered, OfMatrices::orthogonalized);
  }
  void operator()(const ScatterMatrices& op) { advance(op.of, OfMatrices::orthogonalized, OfMatrices::back); }
  // Checked elsewhere: verify_gradient_memory, HostCheck.
  void operator()(const AllocateGradient&) {}
  void operator()(const FreeGradient&) {}
  void operator()(const Upload&) {}
  void operator()(const OffloadGradient&) {}
  void operator()(const SumSquares&) {}
  void operator()(const OffloadActivations&) {}
  void operator()(const DropActivations&) {}
  void operator()(const AllocateActivations&) {}
  void operator()(const ReloadActivations&) {}
  template <class Other>
  requires(of_edge<Other> || (!of_parameters<Other> && !of_microbatch<Other>)) void operator()(const Other&) {}

 private:
  [[nodiscard]] const std::string& name(ParamBlock block) const { return model_[block].name; }
  void complain(const std::string& what) {
    wrong_.push_back(fmt::format("op {} `{}`: {}", index_, print(schedule_.ops[index_], model_), what));
  }
  template <class Compute, class Each>
  void each_stage(const Compute& op, Each each) {
    const StageRange range = stages_of(model_[op.block], op.stage);
    for (int s = range.first; s < range.last; ++s) each({op.block.value, s, op.microbatch.value});
  }
  template <class Each>
  void for_parameters(ParamBlock block, Each each) {
    for (int i = 0; i < static_cast<int>(model_[block].parameters.size()); ++i) each(Parameter{block, i});
  }

  void advance(const Matrices& of, OfMatrices from, OfMatrices to) {
    const auto held = matrices_.find(of.slot);
    if (held == matrices_.end() || held->second.of != of || held->second.at != from)
      return complain("comes out of the order prepare, gather, orthogonalize, scatter of its matrices");
    held->second.at = to;
  }

  void parameters() {
    if (!complete_.unshard) return;
    for (const ParamBlock block : parameters_read(schedule_.ops[index_], model_))
      if (!resident_.contains(block)) complain(fmt::format("reads {}, which is not unsharded", name(block)));
  }

  void contribute(const Backward& op, const std::tuple<int, int, int>& key) {
    const model::Stage& stage = model_[op.block].stages[static_cast<std::size_t>(std::get<1>(key))];
    for (const model::ParamRef ref : stage.parameters) {
      const GradientTarget* target = nullptr;
      for (const GradientTarget& t : op.gradients)
        if (t.block == ref.block) target = &t;
      if (target == nullptr) {
        complain(fmt::format("has nowhere to put the gradient of {}", name(ref.block)));
        continue;
      }
      Content& content = unreduced_[{ref.block, ref.index}];
      if (!target->add && !content.empty())
        complain(fmt::format("overwrites a gradient of {} that was not reduced: microbatch m{} is lost",
                             name(ref.block), std::get<2>(*content.begin())));
      if (target->add && content.empty())
        complain(fmt::format("adds to a gradient of {} that nothing has written", name(ref.block)));
      content.insert(key);
      if (complete_.slots) hold(*target);
    }
  }

  void hold(const GradientTarget& target) {
    for (const auto& [block, slot] : gradient_slot_)
      if (!target.in_place && slot == target.slot && block != target.block)
        complain(fmt::format("writes over the gradient of {} in its slot", name(block)));
    const auto [held, fresh] = gradient_slot_.emplace(target.block, slot_of(target));
    if (!fresh && held->second != slot_of(target)) complain("puts one block's gradient in two slots");
  }

  void expect_reduced() {
    std::map<Parameter, Content> expected;
    for (int b = 0; b < model_.blocks(); ++b)
      for (std::size_t s = 0; s < model_[Block{b}].stages.size(); ++s)
        for (const model::ParamRef ref : model_[Block{b}].stages[s].parameters)
          for (int m = 0; m < schedule_.microbatches; ++m)
            expected[{ref.block, ref.index}].insert({b, static_cast<int>(s), m});
    for (int b = 0; b < model_.param_blocks(); ++b) expect_reduced(ParamBlock{b}, expected);
  }

  void expect_reduced(ParamBlock block, std::map<Parameter, Content>& all_expected) {
    for_parameters(block, [&](const Parameter& p) {
      const Content& expected = all_expected[p];
      if (shard_[p] == expected) return;
      complain(fmt::format(
          "the reduced gradient of {} holds {} contributions of {}: each microbatch must be reduced exactly once",
          model_[block].parameters[static_cast<std::size_t>(p.second)].name, shard_[p].size(), expected.size()));
    });
    if (replicas_ > 1 && !reduced_over_replicas_.contains(block))
      complain(fmt::format("{} was not summed over the replicas", name(block)));
    if (model::has_replicated_gradients(model_[block]) && !summed_.contains({block, Copies::tensor}))
      complain(fmt::format("{} was not summed over its copies on the tensor axis", name(block)));
    if (model_[block].on_two_pipeline_ranks && !summed_.contains({block, Copies::pipeline}))
      complain(fmt::format("{} was not summed over the pipeline ranks that hold it", name(block)));
  }

  void at_end() {
    const auto say = [&](const std::string& what) { wrong_.push_back("end of step: " + what); };
    for (const auto& [block, slot] : resident_)
      if (complete_.unshard) say(fmt::format("{} is still unsharded", name(block)));
    if ((complete_.reduction || complete_.update) && !saved_.empty())
      say(fmt::format("{} m{} has no backward", model_[Block{std::get<0>(saved_.begin()->first)}].name,
                      std::get<2>(saved_.begin()->first)));
    for (const std::string& what : host_.at_end()) say(what);
    if (!complete_.update) return;
    if (!norm_seen_) say("no clip_norm");
    for (const auto& [slot, held] : matrices_)
      if (held.at != OfMatrices::back) say(fmt::format("the matrices of {} are not back", name(held.of.first)));
    for (int b = 0; b < model_.param_blocks(); ++b)
      if (!updated_.contains(ParamBlock{b})) say(fmt::format("{} is not updated", name(ParamBlock{b})));
  }

  const Schedule& schedule_;
  const model::Model& model_;
  int replicas_;
  Complete complete_;
  HostCheck host_;
  std::size_t index_ = 0;
  std::vector<std::string> wrong_;
  std::map<ParamBlock, std::optional<Slot>> resident_, gradient_slot_;  ///< nothing: in place
  std::map<std::tuple<int, int, int>, Kept> saved_;
  std::map<Parameter, Content> unreduced_, shard_;
  std::set<ParamBlock> has_shard_, reduced_over_replicas_, updated_, prepared_;
  std::map<int, HeldMatrices> matrices_;  ///< by slot
  std::set<std::pair<ParamBlock, Copies>> summed_;
  std::map<ParamBlock, int> group_copy_;
  std::optional<ParamBlock> partial_;
  bool norm_seen_ = false;
};

}  // namespace

std::vector<std::string> verify(const Schedule& schedule, const model::Model& model, int replicas, Complete complete) {
  std::vector<std::string> wrong = Replay(schedule, model, replicas, complete).run();
  for (const auto& part : {verify_order(schedule, model), verify_tensor(schedule, model),
                           verify_transfers(schedule, model, complete), verify_gradient_memory(schedule, model)})
    wrong.insert(wrong.end(), part.begin(), part.end());
  return wrong;
}

}  // namespace trireme::schedule
