// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <map>
#include <optional>
#include <set>
#include <tuple>

#include "trireme/schedule/concerns.hpp"
#include "trireme/schedule/exchange.hpp"
#include "trireme/schedule/text.hpp"
#include "trireme/schedule/verify/verify.hpp"

namespace trireme::schedule {
namespace {

/// Replays the tensors between the stages of every microbatch.
class StageBoundaries {
 public:
  StageBoundaries(const Schedule& schedule, const model::Model& model) : schedule_(schedule), model_(model) {}

  std::vector<std::string> run() {
    for (index_ = 0; index_ < schedule_.ops.size(); ++index_) std::visit(*this, schedule_.ops[index_]);
    for (const auto& [m, owed] : owed_)
      if (owed) wrong_.push_back(fmt::format("end of step: `{}` is missing", print(Op{*owed}, model_)));
    return std::move(wrong_);
  }

  void operator()(const Forward& op) {
    expect_no_debt(op.microbatch);
    if (!op.stage) return;
    const Key key{op.block, *op.stage, op.microbatch};
    use(key, Place::before_forward);
    owe(key, Place::after_forward);
  }
  void operator()(const Backward& op) {
    if (!op.stage) {
      if (op.part != BackwardPart::weight) expect_no_debt(op.microbatch);
      return;
    }
    const Key key{op.block, *op.stage, op.microbatch};
    if (op.part == BackwardPart::weight) {
      if (!half_done_.erase(key)) complain("has no backward_input before it");
      if (model::is_branch(stage_of(op.block, *op.stage).kind) && !again_.erase(key))
        complain("reads a branch's input that was not computed again");
      return use(key, Place::before_weights);
    }
    expect_no_debt(op.microbatch);
    if (op.part == BackwardPart::input) half_done_.insert(key);
    use(key, Place::before_backward);
    owe(key, Place::after_backward);
  }
  void operator()(const Recompute& op) {
    expect_no_debt(op.microbatch);
    if (!op.stage) return;
    const Key key{op.block, *op.stage, op.microbatch};
    use(key, Place::before_recompute);
    if (op.stage->value + 1 < static_cast<int>(model_[op.block].stages.size())) owe(key, Place::after_recompute);
  }
  void operator()(const Rebuild& op) { again_.insert({op.block, Stage{op.segment.value + 1}, op.microbatch}); }
  void operator()(const Exchanged& op) {
    const ExchangeRow& row = row_of(op.kind);
    if (row.follows.has(op.phase)) return pay(op);
    const Key key{op.block, op.segment, op.microbatch};
    const bool for_weights = op.phase == Phase::again && row.repeated_for_weights;
    if (!for_weights) expect_no_debt(op.microbatch);
    if (for_weights && !again_.contains(key)) complain("gathers what was not computed again");
    if (!is_expected(op)) complain(row.complaints.unexpected);
    if (op.phase == Phase::forward && row.preceded_by && !arrived_.contains({key, *row.preceded_by, op.phase}))
      complain(row_of(*row.preceded_by).complaints.missing);
    if (!arrived_.insert({key, op.kind, op.phase}).second) complain(row.complaints.repeated);
  }
  // Between chunks nothing waits to be summed.
  void operator()(const Put& op) { expect_no_debt(op.microbatch); }
  void operator()(const Send&) {}
  void operator()(const Receive&) {}
  void operator()(const Take& op) { expect_no_debt(op.microbatch); }
  // Access saved tensors, not those between stages.
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
  /// Whether the stage of an exchange reads it.
  [[nodiscard]] bool is_expected(const Exchanged& op) const {
    for (const Place place :
         {Place::before_forward, Place::before_recompute, Place::before_backward, Place::before_weights})
      for (const PlacedExchange& at : exchanges_at(stage_of(op.block, op.segment), place))
        if (at == PlacedExchange{op.kind, op.phase}) return true;
    return false;
  }
  void complain(std::string_view what) {
    wrong_.push_back(fmt::format("op {} `{}`: {}", index_, print(schedule_.ops[index_], model_), what));
  }
  /// The stage runs now: its exchanges at `place` have been run.
  void use(const Key& key, Place place) {
    const auto& [block, stage, m] = key;
    for (const PlacedExchange& at : exchanges_at(stage_of(block, stage), place))
      if (arrived_.erase({key, at.kind, at.phase}) == 0) complain(row_of(at.kind).complaints.missing);
  }
  /// The exchange at `place` is the next of the microbatch.
  void owe(const Key& key, Place place) {
    const auto& [block, stage, m] = key;
    for (const PlacedExchange& at : exchanges_at(stage_of(block, stage), place))
      owed_[m] = Exchanged{at.kind, block, stage, m, at.phase};
  }
  void pay(const Exchanged& op) {
    std::optional<Exchanged>& owed = owed_[op.microbatch];
    if (owed != op) complain("sums or exchanges what no stage before it has left");
    owed.reset();
  }
  void expect_no_debt(Microbatch m) {
    if (const auto& owed = owed_[m]; owed) complain(fmt::format("comes before `{}`", print(Op{*owed}, model_)));
  }

  const Schedule& schedule_;
  const model::Model& model_;
  std::size_t index_ = 0;
  std::vector<std::string> wrong_;
  std::map<Microbatch, std::optional<Exchanged>> owed_;
  std::set<std::tuple<Key, Exchange, Phase>> arrived_;
  std::set<Key> half_done_, again_;
};

}  // namespace

std::vector<std::string> verify_tensor(const Schedule& schedule, const model::Model& model) {
  return StageBoundaries(schedule, model).run();
}

}  // namespace trireme::schedule
