// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <map>
#include <optional>
#include <set>
#include <tuple>

#include "trireme/schedule/access.hpp"
#include "trireme/schedule/concerns.hpp"
#include "trireme/schedule/text.hpp"
#include "trireme/schedule/verify/verify.hpp"

namespace trireme::schedule {
namespace {

using model::Join;

/// Replays what is between the stages of every microbatch.
class StageBoundaries {
 public:
  StageBoundaries(const Schedule& schedule, const model::Model& model) : schedule_(schedule), model_(model) {}

  std::vector<std::string> run() {
    for (index_ = 0; index_ < schedule_.ops.size(); ++index_) std::visit(*this, schedule_.ops[index_]);
    for (const auto& [m, owed] : owed_)
      if (owed) wrong_.push_back(fmt::format("end of step: `{}` is missing", *owed));
    return std::move(wrong_);
  }

  void operator()(const Forward& op) {
    expect_no_debt(op.microbatch);
    if (!op.stage) return;
    const model::Stage& stage = stage_of(op.block, *op.stage);
    if (gathers(stage.enter)) use({op.block, *op.stage, op.microbatch}, Phase::forward);
    owe(op.microbatch, print_of(stage.leave, op.block, *op.stage, op.microbatch, Phase::forward));
  }
  void operator()(const Backward& op) {
    if (!op.stage) {
      if (op.part != BackwardPart::weight) expect_no_debt(op.microbatch);
      return;
    }
    const model::Stage& stage = stage_of(op.block, *op.stage);
    const Key key{op.block, *op.stage, op.microbatch};
    if (op.part == BackwardPart::weight) {
      if (!half_done_.erase(key)) complain("has no backward_input before it");
      if (model::is_branch(stage.kind) && !again_.erase(key))
        complain("reads a branch's input that was not computed again");
      if (stage.enter == Join::gather_sequence) use(key, Phase::again);
      return;
    }
    expect_no_debt(op.microbatch);
    if (stage.sums_loads && summed_.erase(key) == 0) complain("reads loads that were not summed");
    if (stage.leave == Join::scatter_sequence || stage.leave == Join::combine) use(key, Phase::backward);
    if (op.part == BackwardPart::input) half_done_.insert(key);
    if (stage.enter == Join::gather_keys) {
      use(key, Phase::again);
      owe(op.microbatch, print(Op{ScatterKeys{op.block, *op.stage, op.microbatch}}, model_));
    }
    if (exchanges(stage.enter))
      owe(op.microbatch,
          print(Op{ExchangeHeads{op.block, *op.stage, op.microbatch, Phase::backward, stage.enter == Join::to_tokens}},
                model_));
    if (stage.enter == Join::dispatch)
      owe(op.microbatch, print(Op{Dispatch{op.block, *op.stage, op.microbatch, Phase::backward}}, model_));
    if (stage.enter == Join::gather_sequence)
      owe(op.microbatch, print(Op{ScatterSequence{op.block, *op.stage, op.microbatch, Phase::backward}}, model_));
    if (stage.enter == Join::all_reduce_statistics)
      owe(op.microbatch, print(Op{AllReduceStatistics{op.block, *op.stage, op.microbatch, Phase::backward}}, model_));
    if (stage.enter == Join::all_reduce_activation)
      owe(op.microbatch, print(Op{AllReduceActivation{op.block, *op.stage, op.microbatch, Phase::backward}}, model_));
  }
  void operator()(const Recompute& op) {
    expect_no_debt(op.microbatch);
    if (!op.stage) return;
    const model::Stage& stage = stage_of(op.block, *op.stage);
    if (gathers(stage.enter)) use({op.block, *op.stage, op.microbatch}, Phase::recompute);
    if (op.stage->value + 1 < static_cast<int>(model_[op.block].stages.size()))
      owe(op.microbatch, print_of(stage.leave, op.block, *op.stage, op.microbatch, Phase::recompute));
  }
  void operator()(const RecomputeNorm& op) { again_.insert({op.block, Stage{op.stage.value + 1}, op.microbatch}); }
  void operator()(const GatherSequence& op) {
    const Key key{op.block, op.stage, op.microbatch};
    if (op.phase == Phase::again && !again_.contains(key)) complain("gathers what was not computed again");
    if (op.phase != Phase::again) expect_no_debt(op.microbatch);
    if (!gathered_.insert({key, op.phase}).second) complain("gathers what is there already");
  }
  void operator()(const GatherKeys& op) {
    expect_no_debt(op.microbatch);
    if (stage_of(op.block, op.stage).enter != Join::gather_keys) complain("gathers keys that its stage does not read");
    if (!gathered_.insert({{op.block, op.stage, op.microbatch}, op.phase}).second)
      complain("gathers what is there already");
  }
  void operator()(const ExchangeHeads& op) {
    if (op.phase == Phase::backward) return pay(op.microbatch);
    expect_no_debt(op.microbatch);
    if (stage_of(op.block, op.stage).enter != (op.to_heads ? Join::to_heads : Join::to_tokens))
      complain("exchanges what its stage does not read");
    if (!gathered_.insert({{op.block, op.stage, op.microbatch}, op.phase}).second)
      complain("exchanges what is there already");
  }
  void operator()(const SumLoads& op) {
    if (!stage_of(op.block, op.stage).sums_loads) complain("sums loads that its stage does not read");
    if (!summed_.insert({op.block, op.stage, op.microbatch}).second) complain("sums what is summed already");
  }
  void operator()(const ExchangeCounts& op) {
    expect_no_debt(op.microbatch);
    if (stage_of(op.block, op.stage).enter != Join::dispatch) complain("counts rows that its stage does not get");
    if (!counted_.insert({op.block, op.stage, op.microbatch}).second) complain("counts what is counted already");
  }
  void operator()(const Dispatch& op) {
    if (op.phase == Phase::backward) return pay(op.microbatch);
    expect_no_debt(op.microbatch);
    const Key key{op.block, op.stage, op.microbatch};
    if (stage_of(op.block, op.stage).enter != Join::dispatch) complain("dispatches rows that its stage does not read");
    if (!counted_.contains(key)) complain("dispatches rows that were not counted");
    if (!gathered_.insert({key, op.phase}).second) complain("gathers what is there already");
  }
  void operator()(const Combine& op) {
    if (op.phase == Phase::forward) return pay(op.microbatch);
    expect_no_debt(op.microbatch);
    if (stage_of(op.block, op.stage).leave != Join::combine) complain("combines what its stage does not leave");
    if (!gathered_.insert({{op.block, op.stage, op.microbatch}, op.phase}).second)
      complain("gathers what is there already");
  }
  void operator()(const ScatterKeys& op) { pay(op.microbatch); }
  void operator()(const ScatterSequence& op) { pay(op.microbatch); }
  void operator()(const AllReduceActivation& op) { pay(op.microbatch); }
  void operator()(const AllReduceStatistics& op) {
    if (op.phase == Phase::backward) return pay(op.microbatch);
    expect_no_debt(op.microbatch);
    if (stage_of(op.block, op.stage).enter != Join::all_reduce_statistics)
      complain("sums statistics that its stage does not read");
    if (!gathered_.insert({{op.block, op.stage, op.microbatch}, op.phase}).second)
      complain("sums what is summed already");
  }
  void operator()(const GatherVocabulary& op) { pay(op.microbatch); }
  // Between chunks nothing waits to be summed.
  void operator()(const Put& op) { expect_no_debt(op.microbatch); }
  void operator()(const Send&) {}
  void operator()(const Receive&) {}
  void operator()(const Take& op) { expect_no_debt(op.microbatch); }
  // What is saved, not what stands between stages.
  void operator()(const OffloadActivations&) {}
  void operator()(const DropActivations&) {}
  void operator()(const AllocateActivations&) {}
  void operator()(const ReloadActivations&) {}
  template <class Other>
  requires(!of_microbatch<Other>) void operator()(const Other&) {}

 private:
  using Key = std::tuple<Block, Stage, Microbatch>;

  [[nodiscard]] const model::Stage& stage_of(Block block, Stage stage) const {
    return model_[block].stages[static_cast<std::size_t>(stage.value)];
  }
  [[nodiscard]] static bool exchanges(Join join) { return join == Join::to_heads || join == Join::to_tokens; }
  [[nodiscard]] static bool gathers(Join join) {
    return join == Join::gather_sequence || join == Join::gather_keys || exchanges(join) || join == Join::dispatch ||
           join == Join::all_reduce_statistics;
  }
  /// The op that must follow a stage's forward, as text; empty where there is none.
  [[nodiscard]] std::string print_of(Join join, Block b, Stage s, Microbatch m, Phase phase) const {
    if (join == Join::scatter_sequence) return print(Op{ScatterSequence{b, s, m, phase}}, model_);
    if (join == Join::all_reduce_activation) return print(Op{AllReduceActivation{b, s, m, phase}}, model_);
    if (join == Join::gather_vocabulary) return print(Op{GatherVocabulary{b, s, m}}, model_);
    if (join == Join::combine && phase == Phase::forward) return print(Op{Combine{b, s, m, phase}}, model_);
    return "";
  }
  void complain(const std::string& what) {
    wrong_.push_back(fmt::format("op {} `{}`: {}", index_, print(schedule_.ops[index_], model_), what));
  }
  void owe(Microbatch m, const std::string& op) {
    if (!op.empty()) owed_[m] = op;
  }
  void pay(Microbatch m) {
    std::optional<std::string>& owed = owed_[m];
    if (owed != print(schedule_.ops[index_], model_)) complain("sums or exchanges what no stage before it has left");
    owed.reset();
  }
  void expect_no_debt(Microbatch m) {
    if (const auto& owed = owed_[m]; owed) complain(fmt::format("comes before `{}`", *owed));
  }
  void use(const Key& key, Phase phase) {
    if (gathered_.erase({key, phase}) == 0) complain("reads a sequence that was not gathered");
  }

  const Schedule& schedule_;
  const model::Model& model_;
  std::size_t index_ = 0;
  std::vector<std::string> wrong_;
  std::map<Microbatch, std::optional<std::string>> owed_;
  std::set<std::pair<Key, Phase>> gathered_;
  std::set<Key> half_done_, again_, counted_, summed_;
};

}  // namespace

std::vector<std::string> verify_tensor(const Schedule& schedule, const model::Model& model) {
  return StageBoundaries(schedule, model).run();
}

}  // namespace trireme::schedule
