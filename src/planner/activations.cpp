// SPDX-License-Identifier: Apache-2.0
#include "planner/activations.hpp"

#include "trireme/model/activations.hpp"
#include "trireme/model/stage_work.hpp"
#include "trireme/schedule/access.hpp"

namespace trireme::planner {
namespace {

template <class Compute, class Each>
void each_stage(const Compute& op, const model::Model& model, Each each) {
  const schedule::StageRange range = schedule::stages_of(model[op.block], op.stage);
  for (int s = range.first; s < range.last; ++s) each(std::tuple{op.block.value, s, op.microbatch.value});
}

}  // namespace

model::Counts Activations::counts_of(const Key& key) const {
  const bool receives = model::receives_rows(stage_of(key));
  const auto [block, stage, m] = key;
  return {replay_options_.tokens, replay_options_.stream_tokens(model_),
          receives ? replay_options_.rows_of(model_, Block{block}, Microbatch{m}).received : 0};
}

const std::vector<model::TensorSpec>& Activations::kept_tensors(const model::Stage& stage) {
  const auto [kept, is_new] = kept_tensors_.try_emplace(static_cast<int>(stage.kind));
  if (is_new) kept->second = model::kept_tensors(stage.kind, model_.held);
  return kept->second;
}

const model::Stage& Activations::stage_of(const Key& key) const {
  return model_[Block{std::get<0>(key)}].stages[static_cast<std::size_t>(std::get<1>(key))];
}

std::vector<Bytes> Activations::saved(const Key& key, model::Keep keep) {
  return model::saved_tensors(kept_tensors(stage_of(key)), counts_of(key), replay_options_.compute, keep);
}

/// The residual stream that a block reads.
Bytes Activations::input() const {
  return {replay_options_.stream_tokens(model_) * model_.sizes.hidden * size_of(replay_options_.compute)};
}

void Activations::hold(const Key& key, std::vector<Bytes> tensors) {
  for (const Bytes bytes : held_[key]) total_ = total_ - bytes;
  for (const Bytes bytes : tensors) total_ += bytes;
  held_[key] = std::move(tensors);
}

Bytes Activations::most_during(const schedule::Op& op) {
  return std::visit([this](const auto& verb) { return during(verb); }, op);
}

Bytes Activations::during(const schedule::OffloadActivations& op) {
  Bytes& away = away_[{op.block.value, op.microbatch.value}] = {};
  for (std::size_t stage = 0; stage < model_[op.block].stages.size(); ++stage)
    if (const auto held = held_.find({op.block.value, static_cast<int>(stage), op.microbatch.value});
        held != held_.end())
      for (const Bytes bytes : held->second) away += bytes >= op.min_bytes ? bytes : Bytes{};
  on_host_ += away;
  return total_;
}

Bytes Activations::during(const schedule::DropActivations& op) {
  total_ = total_ - away_.at({op.block.value, op.microbatch.value});
  return total_;
}

Bytes Activations::during(const schedule::AllocateActivations& op) {
  total_ += away_.at({op.block.value, op.microbatch.value});
  return total_;
}

Bytes Activations::during(const schedule::ReloadActivations& op) {
  on_host_ = on_host_ - away_.at({op.block.value, op.microbatch.value});
  return total_;
}

Bytes Activations::during(const schedule::Forward& op) {
  each_stage(op, model_, [&](const Key& key) {
    keep_[key] = op.keep == model::Keep::input ? model::Keep::products : op.keep;
    const bool reads_block = op.keep == model::Keep::input && std::get<1>(key) == 0;
    hold(key, reads_block ? std::vector{input()} : saved(key, op.keep));
  });
  return total_;
}

Bytes Activations::during(const schedule::Recompute& op) {
  each_stage(op, model_, [&](const Key& key) { hold(key, saved(key, model::Keep::products)); });
  return total_;
}

Bytes Activations::during(const schedule::Backward& op) {
  Bytes most = total_;
  if (op.part != schedule::BackwardPart::input) {
    each_stage(op, model_, [&](const Key& key) { hold(key, {}); });
    return most;
  }
  std::vector<Key> waits;  // tensors for its weight gradients, from the last stage on
  each_stage(op, model_, [&](const Key& key) { waits.insert(waits.begin(), key); });
  // A branch whose norm is not split off computes its weight gradients at once. Attention's output has exchanges after
  // it: its tensors for weight gradients are kept in any case.
  const model::Stage& first = stage_of(waits.front());
  if (model::is_in_branch(first)) return most;
  if (model::begins_branch(first.kind)) {
    const int count = static_cast<int>(model_[op.block].stages.size());
    for (int s = op.stage->value + 1; s < count; ++s) {
      const Key next{op.block.value, s, op.microbatch.value};
      if (!model::is_in_branch(stage_of(next))) break;
      waits.insert(waits.begin(), next);
    }
  }
  for (const Key& key : waits) {
    const auto [pending, fresh] =
        model::pending_tensors(kept_tensors(stage_of(key)), counts_of(key), replay_options_.compute, keep_.at(key));
    most = std::max(most, total_ + fresh);
    hold(key, pending);
  }
  return most;
}

}  // namespace trireme::planner
