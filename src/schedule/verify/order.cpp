// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "trireme/schedule/access.hpp"
#include "trireme/schedule/concerns.hpp"
#include "trireme/schedule/text.hpp"
#include "trireme/schedule/verify/verify.hpp"

namespace trireme::schedule {
namespace {

/// A place in the model: a stage of a block.
struct Place {
  Block block;
  Stage stage;
  friend auto operator<=>(const Place&, const Place&) = default;
};

/// How far one microbatch has come. What stands between its stages exists once, so that its ops have one order.
struct Stream {
  int forward = 0;                   ///< stages whose forward has run, of all in the model's order
  int backward = 0;                  ///< stages whose backward has run, from the model's end
  std::optional<Place> recompute{};  ///< the next stage of the block that is computed a second time
  std::optional<Place> again{};      ///< the norm whose output was computed once more and not used yet
  std::set<Place> input_done{};      ///< stages that have their input's gradient and not their weights'
  bool branch_gradient = false;      ///< a gradient stands between the stream and a branch
};

/// Follows the stages of every microbatch.
class Order {
 public:
  Order(const Schedule& schedule, const model::Model& model) : schedule_(schedule), model_(model) {
    for (int b = 0; b < model.blocks(); ++b)
      for (int s = 0; s < stages(Block{b}); ++s) places_.push_back({Block{b}, Stage{s}});
  }

  std::vector<std::string> run() {
    for (index_ = 0; index_ < schedule_.ops.size(); ++index_) std::visit(*this, schedule_.ops[index_]);
    for (const auto& [m, stream] : streams_)
      if (stream.forward < count())
        wrong_.push_back(fmt::format("end of step: the forward of m{} ends before {}", m.value,
                                     name(places_[static_cast<std::size_t>(stream.forward)])));
    return std::move(wrong_);
  }

  void operator()(const Forward& op) {
    Stream& stream = stream_of(op.microbatch);
    for (const Place place : places_of(op)) {
      const int at = index_of(place);
      if (stream.backward > 0) complain("runs a forward after its microbatch's backward began");
      if (at != stream.forward) complain(out_of_order("forward", op.microbatch, next_forward(stream)));
      stream.forward = at + 1;
    }
  }
  void operator()(const Backward& op) {
    Stream& stream = stream_of(op.microbatch);
    if (stream.forward < count())
      complain(fmt::format("comes before the forward of {} in m{}", name(*next_forward(stream)), op.microbatch.value));
    if (op.part == BackwardPart::weight) return weights(op, stream);
    for (const Place place : places_of(op, /*reverse=*/true)) {
      const int at = count() - 1 - index_of(place);
      if (at != stream.backward) complain(out_of_order("backward", op.microbatch, next_backward(stream)));
      if (const model::Stage* partitioned = partitioned_stage(model_, op.block, op.stage); partitioned != nullptr) {
        branch_to_backward(stream);
        stream.branch_gradient =
            partitioned->kind == model::StageKind::logits || partitioned->kind == model::StageKind::post_norm ||
            model::attends(partitioned->kind) || model::ends_attention(partitioned->kind) ||
            model::is_branch(partitioned->kind) || partitioned->kind == model::StageKind::qk_norm ||
            partitioned->kind == model::StageKind::experts || partitioned->kind == model::StageKind::merge;
      }
      stream.backward = at + 1;
      if (op.part == BackwardPart::input) stream.input_done.insert(place);
    }
  }
  void operator()(const Recompute& op) {
    Stream& stream = stream_of(op.microbatch);
    if (stream.branch_gradient && partitioned_stage(model_, op.block, op.stage) != nullptr)
      complain("overwrites the gradient that a backward reads");
    for (const Place place : places_of(op)) {
      if (stream.recompute ? place != *stream.recompute : place.stage.value != 0)
        complain(out_of_order("recompute", op.microbatch,
                              stream.recompute ? stream.recompute : std::optional(Place{op.block, Stage{0}})));
      const bool last = place.stage.value + 1 == stages(place.block);
      stream.recompute = last ? std::nullopt : std::optional(Place{place.block, Stage{place.stage.value + 1}});
    }
  }
  void operator()(const RecomputeNorm& op) {
    Stream& stream = stream_of(op.microbatch);
    if (stream.again)
      complain(fmt::format("overwrites the output of {}, which no backward_weight has read", name(*stream.again)));
    stream.again = Place{op.block, op.stage};
  }
  void operator()(const GatherSequence& op) {
    Stream& stream = stream_of(op.microbatch);
    const Place place{op.block, op.stage};
    if (op.phase == Phase::backward) {
      branch_to_backward(stream);
      stream.branch_gradient = true;
    }
    switch (op.phase) {
      case Phase::forward: return expect(place, op.microbatch, "forward", next_forward(stream));
      case Phase::backward: return expect(place, op.microbatch, "backward", next_backward(stream));
      case Phase::recompute: return expect(place, op.microbatch, "recompute", stream.recompute);
      case Phase::again: return;  // verify_tensor: computed again
    }
  }
  void operator()(const GatherKeys& op) {
    Stream& stream = stream_of(op.microbatch);
    const Place place{op.block, op.stage};
    switch (op.phase) {
      case Phase::forward: return expect(place, op.microbatch, "forward", next_forward(stream));
      case Phase::recompute: return expect(place, op.microbatch, "recompute", stream.recompute);
      case Phase::backward: return complain("gathers keys, which have no backward of their own");
      case Phase::again:
        branch_to_backward(stream);  // a recompute gathers keys, too
        return expect(place, op.microbatch, "backward", next_backward(stream));
    }
  }
  void operator()(const ExchangeHeads& op) { before_its_stage(op, "exchanges what no stage computes again"); }
  void operator()(const AllReduceStatistics& op) {
    before_its_stage(op, "sums statistics that no stage computes again");
  }
  void operator()(const SumLoads& op) {
    expect({op.block, op.stage}, op.microbatch, "backward", next_backward(stream_of(op.microbatch)));
  }
  void operator()(const ExchangeCounts& op) {
    expect({op.block, op.stage}, op.microbatch, "forward", next_forward(stream_of(op.microbatch)));
  }
  void operator()(const Dispatch& op) { before_its_stage(op, "dispatches rows that no forward waits for"); }
  void operator()(const Combine& op) {
    if (op.phase == Phase::forward) return;  // verify_tensor: it follows its stage
    Stream& stream = stream_of(op.microbatch);
    branch_to_backward(stream);
    if (op.phase != Phase::backward) return complain("combines what nothing reads");
    expect({op.block, op.stage}, op.microbatch, "backward", next_backward(stream));
  }
  // Each follows the one stage that has left something to sum: verify_tensor.
  void operator()(const ScatterKeys&) {}
  void operator()(const ScatterSequence&) {}
  void operator()(const AllReduceActivation&) {}
  void operator()(const GatherVocabulary&) {}
  // The stream of a chunk: verify_pipeline.
  void operator()(const Put&) {}
  void operator()(const Send&) {}
  void operator()(const Receive&) {}
  void operator()(const Take&) {}
  // What is saved, not the stream.
  void operator()(const OffloadActivations&) {}
  void operator()(const DropActivations&) {}
  void operator()(const AllocateActivations&) {}
  void operator()(const ReloadActivations&) {}
  template <class Other>
  requires(!of_microbatch<Other>) void operator()(const Other&) {}

 private:
  [[nodiscard]] int stages(Block block) const { return static_cast<int>(model_[block].stages.size()); }
  [[nodiscard]] int count() const { return static_cast<int>(places_.size()); }
  [[nodiscard]] int index_of(Place place) const {
    return static_cast<int>(std::lower_bound(places_.begin(), places_.end(), place) - places_.begin());
  }
  [[nodiscard]] std::string name(Place place) const {
    const model::ComputeBlock& block = model_[place.block];
    return block.name + "." + block.stages[static_cast<std::size_t>(place.stage.value)].name;
  }
  [[nodiscard]] std::optional<Place> next_forward(const Stream& stream) const {
    return stream.forward < count() ? std::optional(places_[static_cast<std::size_t>(stream.forward)]) : std::nullopt;
  }
  [[nodiscard]] std::optional<Place> next_backward(const Stream& stream) const {
    return stream.backward < count() ? std::optional(places_[static_cast<std::size_t>(count() - 1 - stream.backward)])
                                     : std::nullopt;
  }
  template <class Compute>
  [[nodiscard]] std::vector<Place> places_of(const Compute& op, bool reverse = false) const {
    const StageRange range = stages_of(model_[op.block], op.stage);
    std::vector<Place> found;
    for (int s = range.first; s < range.last; ++s) found.push_back({op.block, Stage{s}});
    if (reverse) std::reverse(found.begin(), found.end());
    return found;
  }
  Stream& stream_of(Microbatch m) {
    if (m.value < 0 || m.value >= schedule_.microbatches)
      complain(fmt::format("names m{} of a step of {} microbatches", m.value, schedule_.microbatches));
    return streams_[m];
  }
  void branch_to_backward(const Stream& stream) {
    if (stream.recompute) complain(fmt::format("overwrites what the recompute of {} reads", name(*stream.recompute)));
  }
  void weights(const Backward& op, Stream& stream) {
    for (const Place place : places_of(op, /*reverse=*/true)) {
      if (stream.input_done.erase(place) == 0) complain("does not follow its backward_input");
      if (!model::is_branch(model_[place.block].stages[static_cast<std::size_t>(place.stage.value)].kind)) continue;
      const Place norm{place.block, Stage{place.stage.value - 1}};
      if (stream.again != norm)
        complain(fmt::format("reads the output of {}, which was not computed again", name(norm)));
      stream.again.reset();
    }
  }
  /// An exchange of what the next stage reads. In backward it follows its stage: verify_tensor.
  template <class Exchange>
  void before_its_stage(const Exchange& op, const char* again) {
    Stream& stream = stream_of(op.microbatch);
    const Place place{op.block, op.stage};
    switch (op.phase) {
      case Phase::forward: return expect(place, op.microbatch, "forward", next_forward(stream));
      case Phase::recompute: return expect(place, op.microbatch, "recompute", stream.recompute);
      case Phase::backward: return;
      case Phase::again: return complain(again);
    }
  }
  void expect(Place place, Microbatch m, const char* phase, const std::optional<Place>& next) {
    if (next != place) complain(out_of_order(phase, m, next));
  }
  [[nodiscard]] std::string out_of_order(const char* phase, Microbatch m, const std::optional<Place>& next) const {
    return next ? fmt::format("is out of order: the next {} of m{} is {}", phase, m.value, name(*next))
                : fmt::format("is out of order: no {} of m{} is left or begun", phase, m.value);
  }
  void complain(const std::string& what) {
    wrong_.push_back(fmt::format("op {} `{}`: {}", index_, print(schedule_.ops[index_], model_), what));
  }

  const Schedule& schedule_;
  const model::Model& model_;
  std::vector<Place> places_;  ///< in the order of a forward
  std::size_t index_ = 0;
  std::map<Microbatch, Stream> streams_;
  std::vector<std::string> wrong_;
};

}  // namespace

std::vector<std::string> verify_order(const Schedule& schedule, const model::Model& model) {
  return Order(schedule, model).run();
}

}  // namespace trireme::schedule
