// SPDX-License-Identifier: Apache-2.0
// The ops that run stages.
#include "executor/verbs.hpp"
#include "trireme/base/error.hpp"
#include "trireme/device/buffer.hpp"
#include "trireme/device/memory.hpp"
#include "trireme/schedule/access.hpp"

namespace trireme::executor {
namespace {

/// A recomputed block saves its input, and the decisions of its stages.
nn::Mode mode_that_keeps(model::Keep keep) {
  switch (keep) {
    case model::Keep::input: return nn::Mode::decide;
    case model::Keep::products: return nn::Mode::train;
    case model::Keep::all: return nn::Mode::train_keep_all;
    case model::Keep::kv_cache: break;
  }
  throw BugError("a forward of training keeps its input, its products or all");
}

/// Whether a stage computes losses or logits without an exchange.
bool is_whole_head(const model::Stage& stage) {
  return model::does(stage, model::Work::logits) && !model::is_partitioned(stage);
}

}  // namespace

const nn::Layer& Verbs::layer(Block block, Stage stage) const {
  return layers_.at(static_cast<std::size_t>(block.value)).at(static_cast<std::size_t>(stage.value));
}

void Verbs::keep(const store::ActivationStore::Key& key, std::vector<at::Tensor> tensors) {
  for (const at::Tensor& tensor : tensors) device::charge_to(tensor, {device::Category::activations});
  activations_.keep(key, std::move(tensors));
}

void Verbs::run(const schedule::Forward& op, const Operands& operands) {
  const nn::PlainOperators guard;
  const device::ChargeTo charge(device::Category::workspace);
  const nn::Mode mode = options_.mode == nn::Mode::train ? mode_that_keeps(op.keep) : options_.mode;
  for (const StageOperands& stage : operands.stages) forward_stage(op, stage, mode);
  if (options_.mode != nn::Mode::train && is_whole_head(*operands.stages.back().spec))
    finish_head(op.microbatch, std::move(values(op.microbatch).residual(schedule::Phase::forward)));
}

void Verbs::forward_stage(const schedule::Forward& op, const StageOperands& of, nn::Mode mode) {
  const store::ActivationStore::Key key{op.block, of.stage, op.microbatch};
  nn::Kept kept(layer(op.block, of.stage).kept);
  const bool cached = caches(op, *of.spec);
  if (cached)
    if (std::vector<at::Tensor> cache = activations_.take_any(key); !cache.empty())
      kept.put_saved(std::move(cache), model::Keep::kv_cache);
  at::Tensor block_input;  // kept by a recomputed block
  if (op.keep == model::Keep::input && of.stage.value == 0)
    block_input = values(op.microbatch).residual(schedule::Phase::forward);
  nn::Routing of_stage;
  state_.losses += with_frame(op, of, schedule::Phase::forward, kept, cached ? nn::Mode::generate : mode, of_stage,
                              [](const nn::StageCode& code, nn::StageFrame& f) { code.forward(f); });
  note_choice(op, of, kept, of_stage);
  if (!cached && options_.mode != nn::Mode::train) return;
  std::vector<at::Tensor> saved = kept.take_saved(op.keep);
  if (block_input.defined()) saved.insert(saved.begin(), std::move(block_input));
  keep(key, std::move(saved));
}

void Verbs::run(const schedule::Recompute& op, const Operands& operands) {
  const nn::PlainOperators guard;
  const device::ChargeTo charge(device::Category::workspace);
  for (const StageOperands& stage : operands.stages) recompute_stage(op, stage);
}

void Verbs::recompute_stage(const schedule::Recompute& op, const StageOperands& of) {
  at::Tensor& stream = values(op.microbatch).residual(schedule::Phase::recompute);
  const store::ActivationStore::Key key{op.block, of.stage, op.microbatch};
  std::vector<at::Tensor> decisions = activations_.take(key);
  if (of.stage.value == 0) {
    stream = std::move(decisions.front());
    decisions.erase(decisions.begin());
  }
  nn::Kept kept(layer(op.block, of.stage).kept);
  kept.put_saved(std::move(decisions), model::Keep::input);
  // The output of a block is not read, nor the residual stream within a layer of experts.
  const bool last = of.stage.value + 1 == static_cast<int>(model_[op.block].stages.size());
  const nn::Mode mode = last || model::is_of_experts(of.spec->kind) ? nn::Mode::rebuild : nn::Mode::train;
  nn::Routing of_stage;
  (void)with_frame(op, of, schedule::Phase::recompute, kept, mode, of_stage,
                   [](const nn::StageCode& code, nn::StageFrame& f) { code.forward(f); });
  if (last) stream.reset();
  keep(key, kept.take_saved(model::Keep::products));
}

void Verbs::run(const schedule::Backward& op, const Operands& operands) {
  const nn::PlainOperators guard;
  const device::ChargeTo charge(device::Category::workspace);
  for (const StageOperands& stage : operands.stages) backward_stage(op, stage, operands.weights_wait);
}

void Verbs::backward_stage(const schedule::Backward& op, const StageOperands& of, bool weights_wait) {
  const store::ActivationStore::Key key{op.block, of.stage, op.microbatch};
  const Stage router{of.stage.value - model::stages_from_router};  // of a merge, which reads its choice
  const store::ActivationStore::Key choice{op.block, router, op.microbatch};
  const bool merges = model::only_sums_rows(*of.spec);
  std::vector<at::Tensor> saved = activations_.take(key);
  if (merges) saved = activations_.take(choice);
  // As planned: pending tensors are allocated before the saved ones are freed.
  const std::vector<at::Tensor> until_then = weights_wait || merges ? saved : std::vector<at::Tensor>();
  nn::Kept kept(layer(op.block, merges ? router : of.stage).kept);
  nn::Routing of_stage;
  const auto compute = [&](void (nn::StageCode::*part)(nn::StageFrame&) const) {
    state_.losses += with_frame(op, of, schedule::Phase::backward, kept, nn::Mode::train, of_stage,
                                [&](const nn::StageCode& code, nn::StageFrame& f) { (code.*part)(f); });
  };
  if (op.part == schedule::BackwardPart::weight) {
    kept.put_pending(std::move(saved));
    return compute(&nn::StageCode::backward_weight);
  }
  kept.put_saved(std::move(saved));
  if (op.part == schedule::BackwardPart::whole)
    compute(&nn::StageCode::backward);
  else
    compute(&nn::StageCode::backward_input);
  if (model::does(*of.spec, model::Work::router)) values(op.microbatch).routing() = {};
  if (merges) return activations_.keep(choice, until_then);
  if (op.part == schedule::BackwardPart::whole) return;
  if (weights_wait)
    keep(key, kept.take_pending());
  else
    activations_.keep(key, kept.take_pending());
}

void Verbs::run(const schedule::Rebuild& op, const Operands& operands) {
  const nn::PlainOperators guard;
  const device::ChargeTo charge(device::Category::workspace);
  with_kept(op.block, op.segment, op.microbatch, [&](nn::Kept& kept) {
    nn::Routing none;
    (void)with_frame(op, operands.stages.front(), schedule::Phase::again, kept, nn::Mode::train, none,
                     [](const nn::StageCode& code, nn::StageFrame& f) { code.rebuild(f); });
  });
}

void Verbs::with_kept(Block block, Stage stage, Microbatch m, const std::function<void(nn::Kept&)>& use) {
  const store::ActivationStore::Key key{block, stage, m};
  std::vector<at::Tensor> tensors = activations_.take(key);
  nn::Kept kept(layer(block, stage).kept);
  kept.put_any(tensors);
  use(kept);
  activations_.keep(key, std::move(tensors));
}

void Verbs::finish_head(Microbatch m, at::Tensor output) {
  if (options_.mode == nn::Mode::infer)
    state_.result.logits = std::move(output);
  else
    finish_evaluation(m);
}

void Verbs::fetch_loss() {
  const device::ChargeTo charge(device::Category::workspace);
  nn::Losses& losses = state_.losses;
  if (losses.routers_on_device.defined()) {
    const at::Tensor sums = device::on_host(losses.routers_on_device);
    losses.balance += sums.const_data_ptr<double>()[0];
    losses.router_z += sums.const_data_ptr<double>()[1];
  }
  if (!losses.head_on_device.defined()) return;
  const at::Tensor sums = device::on_host(losses.head_on_device);
  const auto* const of = sums.const_data_ptr<double>();
  losses.head += {.cross_entropy = of[0], .z_loss = of[1]};
}

void Verbs::finish_evaluation(Microbatch m) {
  fetch_loss();
  double& loss = state_.losses.head.cross_entropy;
  state_.result.own_loss = loss;
  link(mesh::Group::dp, schedule::Lane::compute).sum({&loss, 1});
  state_.result.loss = loss * microbatch(m).loss_scale;
}

}  // namespace trireme::executor
