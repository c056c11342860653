// SPDX-License-Identifier: Apache-2.0
// The stages of a layer of experts, and the exchanges between them.
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty_like.h>

#include <numeric>

#include "executor/expert_rows.hpp"
#include "executor/verbs.hpp"
#include "trireme/base/fault.hpp"
#include "trireme/device/memory.hpp"
#include "trireme/kernels/experts.hpp"

namespace trireme::executor {
namespace {

using model::StageKind;
using enum model::TensorId;

}  // namespace

RowCounts& Verbs::counts(Block block, Microbatch m) {
  return counts_[static_cast<std::size_t>(block.value * schedule_.microbatches + m.value)];
}

void Verbs::forward_experts(const schedule::Forward& op, const model::Stage& stage, const StageOperands& operands,
                            nn::Mode mode) {
  const Frame now = frame(op, schedule::Phase::forward);
  kernels::ExpertRows& places = values(op.microbatch).rows();
  const nn::Layer& of = layer(op.block, *op.stage);
  nn::Saved saved;
  if (stage.kind == StageKind::route) {
    std::vector<std::int64_t>& to = counts(op.block, op.microbatch).to;
    to.clear();
    nn::Route::Rows rows = of.route->forward(now[residual], operands.parameters,
                                             microbatch_for(stage, op.block, op.microbatch), mode, saved);
    now[residual] = std::move(rows.hidden);
    now[permuted_tokens] = std::move(rows.rows);
    now[permuted_probs] = std::move(rows.weights);
    places = std::move(rows.by_expert);
    // On a GPU they are not here before counts are exchanged.
    for (std::size_t e = 0; e + 1 < places.begin.size(); ++e) to.push_back(places.begin[e + 1] - places.begin[e]);
    if (options_.mode == nn::Mode::train) note_loads(stage, op.block, op.microbatch, saved);
  } else if (stage.kind == StageKind::experts) {
    if (options_.mode == nn::Mode::train)
      count_expert_tokens(op.block, {.expert_tokens = counts(op.block, op.microbatch).to});
    const at::Tensor rows = now.take(permuted_tokens), probs = now.take(permuted_probs);
    now[expert_output] =
        of.experts->forward(rows, probs, held_rows(op.block, op.microbatch), operands.parameters, mode, saved);
  } else {
    const at::Tensor out = at::empty_like(now[residual]);
    kernels::sum_rows(now[expert_output], places, now[residual], out);
    now[residual] = out;
    now[expert_output].reset();
    places = {};
  }
  if (options_.mode == nn::Mode::train) keep({op.block, *op.stage, op.microbatch}, std::move(saved.tensors));
}

void Verbs::recompute_experts(const schedule::Recompute& op, const model::Stage& stage, const StageOperands& operands) {
  const Frame now = frame(op, schedule::Phase::recompute);
  const nn::Layer& of = layer(op.block, *op.stage);
  const store::ActivationStore::Key key{op.block, *op.stage, op.microbatch};
  nn::Saved saved{activations_.take(key)};
  if (stage.kind == StageKind::route) {
    nn::Route::Rows rows = of.route->forward(now[residual], operands.parameters,
                                             microbatch_for(stage, op.block, op.microbatch), nn::Mode::rebuild, saved);
    now[permuted_tokens] = std::move(rows.rows);
    now[permuted_probs] = std::move(rows.weights);
  } else if (stage.kind == StageKind::experts) {
    const at::Tensor rows = now.take(permuted_tokens), probs = now.take(permuted_probs);
    (void)of.experts->forward(rows, probs, held_rows(op.block, op.microbatch), operands.parameters, nn::Mode::rebuild,
                              saved);
  } else {  // the output of merge is not read
    now[residual].reset();
  }
  keep(key, std::move(saved.tensors));
}

void Verbs::backward_experts(const schedule::Backward& op, const model::Stage& stage, const Operands& of) {
  const StageOperands& operands = of.stages.front();
  const Frame d = frame(op, schedule::Phase::backward);
  kernels::ExpertRows& places = values(op.microbatch).rows();
  const nn::Layer& layers = layer(op.block, *op.stage);
  const store::ActivationStore::Key key{op.block, *op.stage, op.microbatch};
  std::vector<at::Tensor> saved = activations_.take(key);
  if (stage.kind == StageKind::merge) {
    const Stage route{op.stage->value - 2};
    const store::ActivationStore::Key of_route{op.block, route, op.microbatch};
    saved = activations_.take(of_route);
    places = layer(op.block, route).route->rows_of(saved, counts(op.block, op.microbatch).to);
    activations_.keep(of_route, std::move(saved));
    d[expert_output] = kernels::gather_rows(d[residual], places);
    return;
  }
  // As planned: deferred weight gradients need a copy of the saved tensors.
  const std::vector<at::Tensor> until_then = of.weights_wait ? saved : std::vector<at::Tensor>();
  if (op.part != schedule::BackwardPart::weight) {
    if (stage.kind == StageKind::experts) {
      const at::Tensor d_output = d.take(expert_output);
      nn::HeldExperts::Gradients found =
          layers.experts->backward_input(d_output, held_rows(op.block, op.microbatch), operands.parameters, saved);
      d[permuted_tokens] = std::move(found.rows);
      d[permuted_probs] = std::move(found.weights);
    } else {
      const at::Tensor d_residual = d[residual];
      nn::Result result =
          layers.route->backward_input(d[permuted_tokens], d[permuted_probs], d_residual, places, operands.parameters,
                                       microbatch_for(stage, op.block, op.microbatch), saved);
      if (layers.route->shares()) saved.insert(saved.begin(), d_residual);
      d[residual] = std::move(result.hidden);
      d[permuted_tokens].reset();
      d[permuted_probs].reset();
      places = {};
      add_loss(result);
    }
  }
  if (op.part == schedule::BackwardPart::input) return keep(key, std::move(saved));
  if (stage.kind == StageKind::experts)
    return layers.experts->backward_weight(held_rows(op.block, op.microbatch), operands.gradients, saved);
  const std::size_t shared = layers.route->shares() ? 1 : 0;
  layers.route->backward_weight(saved.front(), operands.gradients, std::span(saved).subspan(shared));
}

nn::Result Verbs::forward_whole(const store::ActivationStore::Key& key, std::span<const at::Tensor> parameters,
                                at::Tensor hidden, nn::Mode mode, nn::Saved& saved) {
  const auto& [block, number, m] = key;
  const nn::Stage& whole = *layer(block, number).whole;
  const model::Stage& stage = model_[block].stages[static_cast<std::size_t>(number.value)];
  if (stage.kind != StageKind::moe) return whole.forward(std::move(hidden), parameters, microbatch(m), mode, saved);
  nn::Result result = whole.forward(std::move(hidden), parameters, microbatch_for(stage, block, m), mode, saved);
  if (nn::saves(mode) ? mode != nn::Mode::rebuild : mode == nn::Mode::decide) note_loads(stage, block, m, saved);
  return result;
}

void Verbs::note_loads(const model::Stage& stage, Block block, Microbatch m, const nn::Saved& saved) {
  if (!stage.sums_loads) return;
  const nn::Microbatch of = microbatch_for(stage, block, m);
  counts(block, m).loads =
      kernels::sequence_loads(nn::Route::choice_of(saved.tensors), {.length = of.seq_len, .first = of.first_token},
                              of.batch, model_.sizes.decoder.experts->count);
}

void Verbs::count_expert_tokens(Block block, const nn::Result& result) {
  if (result.expert_tokens.empty()) return;
  std::vector<std::int64_t>& tokens = state_.result.expert_tokens[static_cast<std::size_t>(model_[block].layer)];
  for (std::size_t e = 0; e < tokens.size(); ++e) tokens[e] += result.expert_tokens[e];
}

void Verbs::sum_experts() {
  StepResult& result = state_.result;
  std::vector<double> sums{result.balance_loss, result.router_z_loss};
  for (const auto& layer : result.expert_tokens) sums.insert(sums.end(), layer.begin(), layer.end());
  link(mesh::Group::dp, schedule::Lane::compute).sum(sums);
  if (comm::Collectives* const tensor = links_.find({mesh::Group::tensor, schedule::Lane::compute}); tensor != nullptr)
    tensor->sum(sums);  // each has seen other tokens
  if (comm::Collectives* const pipeline = links_.find({mesh::Group::pipeline, schedule::Lane::compute});
      pipeline != nullptr)
    pipeline->sum(sums);
  result.balance_loss = sums[0];
  result.router_z_loss = sums[1];
  auto next = sums.begin() + 2;
  for (auto& layer : result.expert_tokens)
    for (std::int64_t& tokens : layer) tokens = static_cast<std::int64_t>(*next++);
}

std::int64_t Verbs::stream_tokens(Microbatch m) const {
  const nn::Microbatch& of = microbatch(m);
  return of.batch * of.seq_len / (model_.part.sequence_parallel ? model_.part.ranks : 1);
}

nn::Microbatch Verbs::microbatch_for(const model::Stage& stage, Block block, Microbatch m) {
  nn::Microbatch of = microbatch(m);
  if (stage.kind != StageKind::moe && stage.kind != StageKind::route) return of;
  of.choice_bias = choice_bias(stage.parameters.front().block);
  of.expert_tokens = counts(block, m).to;
  if (model_.part.sequence_parallel) of.first_token = model_.part.rank * stream_tokens(m);
  if (stage.sums_loads) of.loads = counts(block, m).loads;
  return of;
}

at::Tensor Verbs::choice_bias(ParamBlock block) {
  const at::Tensor& here = store_.choice_bias(block);
  if (!here.defined() || options_.device.is_cpu()) return here;
  at::Tensor& there = device_choice_biases_[block.value];
  if (!there.defined()) there = here.to(options_.device, /*non_blocking=*/true);
  return there;
}

void Verbs::step_choice_biases() {
  for (const model::ComputeBlock& block : model_.compute_blocks)
    for (const model::Stage& stage : block.stages) {
      if (stage.kind != StageKind::moe && stage.kind != StageKind::route) continue;
      const at::Tensor& bias = store_.choice_bias(stage.parameters.front().block);
      const auto& tokens = state_.result.expert_tokens[static_cast<std::size_t>(block.layer)];
      const auto experts = static_cast<std::int64_t>(tokens.size());
      const std::int64_t all = std::accumulate(tokens.begin(), tokens.end(), std::int64_t{0});
      auto* const values = bias.mutable_data_ptr<float>();
      const auto rate = static_cast<float>(options_.balance_bias_rate);
      for (std::size_t e = 0; e < tokens.size(); ++e) {
        const std::int64_t load = experts * tokens[e];
        if (load != all) values[e] += load < all ? rate : -rate;
      }
    }
}

std::vector<std::int64_t> Verbs::held_rows(Block block, Microbatch m) {
  return counts(block, m).begins(model_.part.experts.ranks);
}

void Verbs::exchange_of_experts(const schedule::Exchanged& op) {
  const schedule::ExchangeRow& row = schedule::row_of(op.kind);
  if (row.pack == schedule::Layout::rows) return exchange_rows(op, link(row.group, row.lane));
  RowCounts& of = counts(op.block, op.microbatch);
  if (op.kind == schedule::Exchange::sum_loads) {
    if (fault::point("experts.loads")) return;  // withheld
    return link(row.group, row.lane).all_reduce(of.loads.mutable_data_ptr<float>(), of.loads.numel(), DType::fp32);
  }
  const std::int64_t tokens = stream_tokens(op.microbatch);
  kernels::ExpertRows& mine = values(op.microbatch).rows();
  comm::Collectives& experts = link(row.group, row.lane);
  if (!mine.begin_on_device.defined()) return exchange_counts(experts, of, tokens, model_[op.block].name);
  exchange_counts_on_device(experts, mine, of, tokens, model_[op.block].name);
}

void Verbs::exchange_rows(const schedule::Exchanged& op, comm::Collectives& experts) {
  const Frame now = frame(op, op.phase);
  const bool dispatches = op.kind == schedule::Exchange::dispatch, trains = options_.mode == nn::Mode::train;
  const bool outward = dispatches != (op.phase == schedule::Phase::backward);
  const RowCounts& of = counts(op.block, op.microbatch);
  at::Tensor& rows = now[schedule::sent_by(op, stage_of(op))];
  const RowsAndWeights mine{.rows = rows, .weights = dispatches ? now[permuted_probs] : at::Tensor()};
  const bool withheld = trains && fault::point(dispatches ? "experts.dispatch" : "experts.combine") && dispatches;
  RowsAndWeights moved = withheld ? rows_like(mine, outward ? of.received() : of.mine())
                                  : (outward ? to_experts : from_experts)(experts, of, mine);
  rows = std::move(moved.rows);
  if (dispatches) now[permuted_probs] = std::move(moved.weights);
}

void Verbs::record_rows() {
  const model::ExpertPart& part = model_.part.experts;
  for (int b = 0; b < model_.blocks(); ++b)
    for (int m = 0; m < schedule_.microbatches; ++m) {
      const RowCounts& of = counts(Block{b}, Microbatch{m});
      if (of.from.empty()) continue;
      const std::int64_t kept = of.kept(part.rank, part.ranks);
      state_.result.expert_rows.push_back({.block = Block{b},
                                           .microbatch = Microbatch{m},
                                           .received = of.received(),
                                           .sent = of.mine() - kept,
                                           .fetched = of.received() - kept});
    }
}

}  // namespace trireme::executor
