// SPDX-License-Identifier: Apache-2.0
// The passes that place compute: order of stages, and their fusion.
#include <algorithm>

#include "schedule/passes/append.hpp"
#include "trireme/model/stage_work.hpp"
#include "trireme/schedule/access.hpp"
#include "trireme/schedule/passes/passes.hpp"

namespace trireme::schedule {
namespace {

int stage_count(const model::Model& model, int block) {
  return static_cast<int>(model.compute_blocks[static_cast<std::size_t>(block)].stages.size());
}

const model::Stage& stage_of(const model::Model& model, Block block, Stage stage) {
  return model[block].stages[static_cast<std::size_t>(stage.value)];
}

/// Rebuilds the input of a branch for its weights' gradients.
void append_input_again(std::vector<Op>& ops, const model::Model& model, Block b, Stage s, Microbatch m) {
  ops.push_back(Rebuild{b, Stage{s.value - 1}, m});
  append_exchanges(ops, model, b, s, m, Place::before_weights);
}

void append_forward(std::vector<Op>& ops, const model::Model& model, int microbatch) {
  for (int b = 0; b < model.blocks(); ++b)
    for (int s = 0; s < stage_count(model, b); ++s)
      append_forward(ops, model, Block{b}, Stage{s}, Microbatch{microbatch});
}

void append_backward(std::vector<Op>& ops, const model::Model& model, int microbatch) {
  for (int b = model.blocks() - 1; b >= 0; --b)
    for (int s = stage_count(model, b) - 1; s >= 0; --s)
      append_backward(ops, model, Block{b}, Stage{s}, Microbatch{microbatch});
}

/// Ops `first`.. of the schedule that run all stages of one block in a row, as one op; nothing if they do not.
template <class Compute>
std::optional<Compute> whole_block(const std::vector<Op>& ops, std::size_t first, const model::Model& model) {
  const auto* head = std::get_if<Compute>(&ops[first]);
  if (head == nullptr || !head->stage) return std::nullopt;
  const auto count = static_cast<std::size_t>(stage_count(model, head->block.value));
  if (first + count > ops.size()) return std::nullopt;
  for (const model::Stage& stage : model[head->block].stages)
    if (model::is_partitioned(stage)) return std::nullopt;
  Compute whole = *head;
  whole.stage.reset();
  for (std::size_t i = 1; i < count; ++i) {
    const auto* next = std::get_if<Compute>(&ops[first + i]);
    if (next == nullptr || next->block != head->block || next->microbatch != head->microbatch) return std::nullopt;
    if constexpr (std::is_same_v<Compute, Forward>)
      if (next->keep != head->keep) return std::nullopt;
    if constexpr (std::is_same_v<Compute, Backward>) {
      if (next->part != head->part) return std::nullopt;
      for (const GradientTarget& target : next->gradients)
        if (std::find(whole.gradients.begin(), whole.gradients.end(), target) == whole.gradients.end())
          whole.gradients.push_back(target);
    }
  }
  return whole;
}

}  // namespace

void append_exchanges(std::vector<Op>& ops, const model::Model& model, Block b, Stage s, Microbatch m, Place place) {
  for (const PlacedExchange& at : exchanges_at(stage_of(model, b, s), place))
    ops.push_back(Exchanged{at.kind, b, s, m, at.phase});
}

void append_forward(std::vector<Op>& ops, const model::Model& model, Block b, Stage s, Microbatch m) {
  append_exchanges(ops, model, b, s, m, Place::before_forward);
  ops.push_back(Forward{b, s, m});
  append_exchanges(ops, model, b, s, m, Place::after_forward);
}

void append_backward(std::vector<Op>& ops, const model::Model& model, Block b, Stage s, Microbatch m) {
  const auto backward = [&](BackwardPart part) {
    ops.push_back(Backward{.block = b, .stage = s, .microbatch = m, .gradients = {}, .part = part});
  };
  append_exchanges(ops, model, b, s, m, Place::before_backward);
  const model::Stage& stage = stage_of(model, b, s);
  const bool in_parts = model::is_in_branch(stage) || model::ends_attention(stage.kind);
  if (model::is_branch(stage.kind)) append_input_again(ops, model, b, s, m);
  backward(in_parts ? BackwardPart::input : BackwardPart::whole);
  append_exchanges(ops, model, b, s, m, Place::after_backward);
  if (in_parts) backward(BackwardPart::weight);
}

void append_backward_input(std::vector<Op>& ops, const model::Model& model, Block b, Stage s, Microbatch m) {
  append_exchanges(ops, model, b, s, m, Place::before_backward);
  const bool weights = model::has_weights(stage_of(model, b, s).kind);
  ops.push_back(Backward{.block = b,
                         .stage = s,
                         .microbatch = m,
                         .gradients = {},
                         .part = weights ? BackwardPart::input : BackwardPart::whole});
  append_exchanges(ops, model, b, s, m, Place::after_backward);
}

void append_backward_weight(std::vector<Op>& ops, const model::Model& model, Block b, Stage s, Microbatch m) {
  if (!model::has_weights(stage_of(model, b, s).kind)) return;
  if (model::is_branch(stage_of(model, b, s).kind)) append_input_again(ops, model, b, s, m);
  ops.push_back(Backward{.block = b, .stage = s, .microbatch = m, .gradients = {}, .part = BackwardPart::weight});
}

Schedule compute_order(const model::Model& model, int microbatches) {
  Schedule out{.microbatches = microbatches, .ops = {}};
  for (int m = 0; m < microbatches; ++m) {
    append_forward(out.ops, model, m);
    append_backward(out.ops, model, m);
  }
  return out;
}

Schedule forward_order(const model::Model& model) {
  Schedule out;
  append_forward(out.ops, model, 0);
  return out;
}

Schedule fuse_stages(Schedule schedule, const model::Model& model) {
  std::vector<Op> ops;
  for (std::size_t i = 0; i < schedule.ops.size();) {
    if (auto forward = whole_block<Forward>(schedule.ops, i, model)) {
      i += static_cast<std::size_t>(stage_count(model, forward->block.value));
      ops.emplace_back(*forward);
    } else if (auto recompute = whole_block<Recompute>(schedule.ops, i, model)) {
      i += static_cast<std::size_t>(stage_count(model, recompute->block.value));
      ops.emplace_back(*recompute);
    } else if (auto backward = whole_block<Backward>(schedule.ops, i, model)) {
      i += static_cast<std::size_t>(stage_count(model, backward->block.value));
      ops.emplace_back(*backward);
    } else {
      ops.push_back(schedule.ops[i++]);
    }
  }
  schedule.ops = std::move(ops);
  return schedule;
}

}  // namespace trireme::schedule
