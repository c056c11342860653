// SPDX-License-Identifier: Apache-2.0
// The passes that place compute: order of stages, and their fusion.
#include <algorithm>

#include "schedule/passes/append.hpp"
#include "trireme/schedule/access.hpp"
#include "trireme/schedule/passes/passes.hpp"

namespace trireme::schedule {
namespace {

int stage_count(const model::Model& model, int block) {
  return static_cast<int>(model.compute_blocks[static_cast<std::size_t>(block)].stages.size());
}

using model::Join;

const model::Stage& stage_of(const model::Model& model, Block block, Stage stage) {
  return model[block].stages[static_cast<std::size_t>(stage.value)];
}

/// A branch's input once more, for the gradients of its weights.
void append_input_again(std::vector<Op>& ops, const model::Model& model, Block b, Stage s, Microbatch m) {
  ops.push_back(RecomputeNorm{b, Stage{s.value - 1}, m});
  if (stage_of(model, b, s).enter == Join::gather_sequence) ops.push_back(GatherSequence{b, s, m, Phase::again});
}

/// The exchange that stands before a stage's forward, or behind its backward the other way.
std::optional<Op> exchange_of(const model::Model& model, Block b, Stage s, Microbatch m, Phase phase) {
  const Join enter = stage_of(model, b, s).enter;
  if (enter != Join::to_heads && enter != Join::to_tokens) return std::nullopt;
  return ExchangeHeads{b, s, m, phase, (enter == Join::to_heads) == (phase != Phase::backward)};
}

/// What a stage's backward reads of other ranks.
void append_gathers_for_backward(std::vector<Op>& ops, const model::Model& model, Block b, Stage s, Microbatch m) {
  const model::Stage& stage = stage_of(model, b, s);
  if (stage.leave == Join::scatter_sequence) ops.push_back(GatherSequence{b, s, m, Phase::backward});
  if (stage.enter == Join::gather_keys) ops.push_back(GatherKeys{b, s, m, Phase::again});
  if (stage.leave == Join::combine) ops.push_back(Combine{b, s, m, Phase::backward});
  if (stage.sums_loads) ops.push_back(SumLoads{b, s, m});
}

void append_sum_of_input_gradient(std::vector<Op>& ops, const model::Model& model, Block b, Stage s, Microbatch m) {
  const Join enter = stage_of(model, b, s).enter;
  if (enter == Join::gather_keys) ops.push_back(ScatterKeys{b, s, m});
  if (const auto exchange = exchange_of(model, b, s, m, Phase::backward)) ops.push_back(*exchange);
  if (enter == Join::dispatch) ops.push_back(Dispatch{b, s, m, Phase::backward});
  if (enter == Join::gather_sequence) ops.push_back(ScatterSequence{b, s, m, Phase::backward});
  if (enter == Join::all_reduce_activation) ops.push_back(AllReduceActivation{b, s, m, Phase::backward});
  if (enter == Join::all_reduce_statistics) ops.push_back(AllReduceStatistics{b, s, m, Phase::backward});
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

void append_context_join(std::vector<Op>& ops, const model::Model& model, Block b, Stage s, Microbatch m, Phase phase) {
  if (stage_of(model, b, s).enter == Join::gather_keys) ops.push_back(GatherKeys{b, s, m, phase});
  if (const auto exchange = exchange_of(model, b, s, m, phase)) ops.push_back(*exchange);
}

void append_forward(std::vector<Op>& ops, const model::Model& model, Block b, Stage s, Microbatch m) {
  const model::Stage& stage = stage_of(model, b, s);
  if (stage.enter == Join::gather_sequence) ops.push_back(GatherSequence{b, s, m, Phase::forward});
  if (stage.enter == Join::all_reduce_statistics) ops.push_back(AllReduceStatistics{b, s, m, Phase::forward});
  append_context_join(ops, model, b, s, m, Phase::forward);
  if (stage.enter == Join::dispatch) {
    ops.push_back(ExchangeCounts{b, s, m});
    ops.push_back(Dispatch{b, s, m, Phase::forward});
  }
  ops.push_back(Forward{b, s, m});
  if (stage.leave == Join::combine) ops.push_back(Combine{b, s, m, Phase::forward});
  if (stage.leave == Join::scatter_sequence) ops.push_back(ScatterSequence{b, s, m, Phase::forward});
  if (stage.leave == Join::all_reduce_activation) ops.push_back(AllReduceActivation{b, s, m, Phase::forward});
  if (stage.leave == Join::gather_vocabulary) ops.push_back(GatherVocabulary{b, s, m});
}

void append_backward(std::vector<Op>& ops, const model::Model& model, Block b, Stage s, Microbatch m) {
  const auto backward = [&](BackwardPart part) {
    ops.push_back(Backward{.block = b, .stage = s, .microbatch = m, .gradients = {}, .part = part});
  };
  append_gathers_for_backward(ops, model, b, s, m);
  const model::StageKind kind = stage_of(model, b, s).kind;
  const bool in_parts = model::is_branch(kind) || model::ends_attention(kind) || kind == model::StageKind::qk_norm;
  if (model::is_branch(kind)) append_input_again(ops, model, b, s, m);
  backward(in_parts ? BackwardPart::input : BackwardPart::whole);
  append_sum_of_input_gradient(ops, model, b, s, m);
  if (in_parts) backward(BackwardPart::weight);
}

void append_backward_input(std::vector<Op>& ops, const model::Model& model, Block b, Stage s, Microbatch m) {
  append_gathers_for_backward(ops, model, b, s, m);
  const bool weights = model::has_weights(stage_of(model, b, s).kind);
  ops.push_back(Backward{.block = b,
                         .stage = s,
                         .microbatch = m,
                         .gradients = {},
                         .part = weights ? BackwardPart::input : BackwardPart::whole});
  append_sum_of_input_gradient(ops, model, b, s, m);
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
