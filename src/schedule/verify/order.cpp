// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "trireme/model/stage_tensors.hpp"
#include "trireme/schedule/access.hpp"
#include "trireme/schedule/concerns.hpp"
#include "trireme/schedule/exchange.hpp"
#include "trireme/schedule/text.hpp"
#include "trireme/schedule/verify/verify.hpp"

namespace trireme::schedule {
namespace {

/// A stage of a block.
struct Position {
  Block block;
  Stage stage;
  friend auto operator<=>(const Position&, const Position&) = default;
};

/// Progress of one microbatch. Tensors between its stages exist once, so that its ops have one order.
struct Stream {
  int forward = 0;                      ///< stages whose forward has run, of all in the model's order
  int backward = 0;                     ///< stages whose backward has run, from the model's end
  std::optional<Position> recompute{};  ///< the next stage of the block that is computed a second time
  std::optional<Position> again{};      ///< the norm whose output was rebuilt and not used yet
  std::set<Position> input_done{};      ///< stages that have their input's gradient and not their weights'
  bool branch_gradient = false;         ///< the gradient of a branch exists, not yet added to the stream
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
    for (const Position place : places_of(op)) {
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
    for (const Position place : places_of(op, /*reverse=*/true)) {
      const int at = count() - 1 - index_of(place);
      if (at != stream.backward) complain(out_of_order("backward", op.microbatch, next_backward(stream)));
      if (const model::Stage* partitioned = partitioned_stage(model_, op.block, op.stage); partitioned != nullptr) {
        branch_to_backward(stream);
        stream.branch_gradient = model::input_of(partitioned->kind) != model::TensorId::residual;
      }
      stream.backward = at + 1;
      if (op.part == BackwardPart::input) stream.input_done.insert(place);
    }
  }
  void operator()(const Recompute& op) {
    Stream& stream = stream_of(op.microbatch);
    if (stream.branch_gradient && partitioned_stage(model_, op.block, op.stage) != nullptr)
      complain("overwrites the gradient that a backward reads");
    for (const Position place : places_of(op)) {
      if (stream.recompute ? place != *stream.recompute : place.stage.value != 0)
        complain(out_of_order("recompute", op.microbatch,
                              stream.recompute ? stream.recompute : std::optional(Position{op.block, Stage{0}})));
      const bool last = place.stage.value + 1 == stages(place.block);
      stream.recompute = last ? std::nullopt : std::optional(Position{place.block, Stage{place.stage.value + 1}});
    }
  }
  void operator()(const Rebuild& op) {
    Stream& stream = stream_of(op.microbatch);
    if (stream.again)
      complain(fmt::format("overwrites the output of {}, which no backward_weight has read", name(*stream.again)));
    stream.again = Position{op.block, op.segment};
  }
  void operator()(const Exchanged& op) {
    const ExchangeRow& row = row_of(op.kind);
    if (row.follows.has(op.phase)) return;  // verify_tensor
    if (!row.phases.has(op.phase)) return complain(std::string(row.complaints.wrong_phase));
    Stream& stream = stream_of(op.microbatch);
    const Position place{op.block, op.segment};
    switch (op.phase) {
      case Phase::forward: return expect(place, op.microbatch, "forward", next_forward(stream));
      case Phase::recompute: return expect(place, op.microbatch, "recompute", stream.recompute);
      case Phase::again:
        if (row.repeated_for_weights) return;  // verify_tensor: after its Rebuild
        branch_to_backward(stream);            // a recompute has the same exchange
        break;
      case Phase::backward:
        if (op.kind == Exchange::sum_loads) break;  // of values that the forward has left, not of a gradient
        branch_to_backward(stream);
        stream.branch_gradient = true;
    }
    expect(place, op.microbatch, "backward", next_backward(stream));
  }
  // The stream of a chunk: verify_pipeline.
  void operator()(const Put&) {}
  void operator()(const Send&) {}
  void operator()(const Receive&) {}
  void operator()(const Take&) {}
  // Access saved tensors, not the stream.
  void operator()(const OffloadActivations&) {}
  void operator()(const DropActivations&) {}
  void operator()(const AllocateActivations&) {}
  void operator()(const ReloadActivations&) {}
  template <class Other>
  requires(!of_microbatch<Other>) void operator()(const Other&) {}

 private:
  [[nodiscard]] int stages(Block block) const { return static_cast<int>(model_[block].stages.size()); }
  [[nodiscard]] int count() const { return static_cast<int>(places_.size()); }
  [[nodiscard]] int index_of(Position place) const {
    return static_cast<int>(std::lower_bound(places_.begin(), places_.end(), place) - places_.begin());
  }
  [[nodiscard]] std::string name(Position place) const {
    const model::ComputeBlock& block = model_[place.block];
    return block.name + "." + block.stages[static_cast<std::size_t>(place.stage.value)].name;
  }
  [[nodiscard]] std::optional<Position> next_forward(const Stream& stream) const {
    return stream.forward < count() ? std::optional(places_[static_cast<std::size_t>(stream.forward)]) : std::nullopt;
  }
  [[nodiscard]] std::optional<Position> next_backward(const Stream& stream) const {
    return stream.backward < count() ? std::optional(places_[static_cast<std::size_t>(count() - 1 - stream.backward)])
                                     : std::nullopt;
  }
  template <class Compute>
  [[nodiscard]] std::vector<Position> places_of(const Compute& op, bool reverse = false) const {
    const StageRange range = stages_of(model_[op.block], op.stage);
    std::vector<Position> found;
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
    for (const Position place : places_of(op, /*reverse=*/true)) {
      if (stream.input_done.erase(place) == 0) complain("does not follow its backward_input");
      if (!model::is_branch(model_[place.block].stages[static_cast<std::size_t>(place.stage.value)].kind)) continue;
      const Position norm{place.block, Stage{place.stage.value - 1}};
      if (stream.again != norm)
        complain(fmt::format("reads the output of {}, which was not computed again", name(norm)));
      stream.again.reset();
    }
  }
  void expect(Position place, Microbatch m, const char* phase, const std::optional<Position>& next) {
    if (next != place) complain(out_of_order(phase, m, next));
  }
  [[nodiscard]] std::string out_of_order(const char* phase, Microbatch m, const std::optional<Position>& next) const {
    return next ? fmt::format("is out of order: the next {} of m{} is {}", phase, m.value, name(*next))
                : fmt::format("is out of order: no {} of m{} is left or begun", phase, m.value);
  }
  void complain(const std::string& what) {
    wrong_.push_back(fmt::format("op {} `{}`: {}", index_, print(schedule_.ops[index_], model_), what));
  }

  const Schedule& schedule_;
  const model::Model& model_;
  std::vector<Position> places_;  ///< in the order of a forward
  std::size_t index_ = 0;
  std::map<Microbatch, Stream> streams_;
  std::vector<std::string> wrong_;
};

}  // namespace

std::vector<std::string> verify_order(const Schedule& schedule, const model::Model& model) {
  return Order(schedule, model).run();
}

}  // namespace trireme::schedule
