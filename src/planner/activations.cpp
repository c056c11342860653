// SPDX-License-Identifier: Apache-2.0
#include "planner/activations.hpp"

#include "trireme/model/activations.hpp"
#include "trireme/schedule/access.hpp"

namespace trireme::planner {
namespace {

template <class Compute, class Each>
void each_stage(const Compute& op, const model::Model& model, Each each) {
  const schedule::StageRange range = schedule::stages_of(model[op.block], op.stage);
  for (int s = range.first; s < range.last; ++s) each(std::tuple{op.block.value, s, op.microbatch.value});
}

}  // namespace

Bytes Activations::saved(const Key& key, model::Keep keep) const {
  const model::ComputeBlock& block = model_[Block{std::get<0>(key)}];
  return model::saved_bytes(block.stages[static_cast<std::size_t>(std::get<1>(key))].kind, model_.sizes, sizing_.tokens,
                            sizing_.compute, keep);
}

/// The residual stream that a block reads.
Bytes Activations::input() const { return {sizing_.tokens * model_.sizes.hidden * size_of(sizing_.compute)}; }

void Activations::hold(const Key& key, Bytes bytes) {
  total_ = total_ - held_[key] + bytes;
  held_[key] = bytes;
}

void Activations::forward(const schedule::Forward& op) {
  each_stage(op, model_, [&](const Key& key) {
    if (op.keep != model::Keep::input)
      hold(key, saved(key, op.keep));
    else if (std::get<1>(key) == 0)
      hold(key, input());
  });
}

void Activations::recompute(const schedule::Recompute& op) {
  each_stage(op, model_, [&](const Key& key) { hold(key, saved(key, model::Keep::products)); });
}

Bytes Activations::most_during(const schedule::Op& op) {
  if (const auto* verb = std::get_if<schedule::Forward>(&op)) forward(*verb);
  if (const auto* verb = std::get_if<schedule::Recompute>(&op)) recompute(*verb);
  const Bytes most = total_;
  if (const auto* verb = std::get_if<schedule::Backward>(&op))
    each_stage(*verb, model_, [&](const Key& key) { hold(key, Bytes{}); });
  return most;
}

}  // namespace trireme::planner
