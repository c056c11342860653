// SPDX-License-Identifier: Apache-2.0
// Exchanges between expert ranks, and the stages between which they stand.
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

}  // namespace

RowCounts& Verbs::counts(Block block, Microbatch m) {
  return counts_[static_cast<std::size_t>(block.value * schedule_.microbatches + m.value)];
}

void Verbs::forward_experts(const schedule::Forward& op, const model::Stage& stage, const StageOperands& operands,
                            nn::Mode mode) {
  InFlight& now = in_flight(op.microbatch);
  const nn::Layer& of = layer(op.block, *op.stage);
  nn::Saved saved;
  if (stage.kind == StageKind::route) {
    nn::Route::Rows rows =
        of.route->forward(now.hidden, operands.parameters, microbatch_for(stage, op.microbatch), mode, saved);
    now.hidden = std::move(rows.hidden);
    now.rows = std::move(rows.rows);
    now.row_weights = std::move(rows.weights);
    now.by_expert = std::move(rows.by_expert);
    std::vector<std::int64_t>& to = counts(op.block, op.microbatch).to;
    to.clear();
    for (std::size_t e = 0; e + 1 < now.by_expert.begin.size(); ++e)
      to.push_back(now.by_expert.begin[e + 1] - now.by_expert.begin[e]);
    if (options_.mode == nn::Mode::train) count_expert_tokens(op.block, {.expert_tokens = to});
  } else if (stage.kind == StageKind::experts) {
    now.rows = of.experts->forward(now.rows, now.row_weights, held_rows(op.block, op.microbatch), operands.parameters,
                                   mode, saved);
    now.row_weights.reset();
  } else {
    const at::Tensor out = at::empty_like(now.hidden);
    kernels::sum_rows(now.rows, now.by_expert, now.hidden, out);
    now.hidden = out;
    drop_rows(now);
  }
  if (options_.mode == nn::Mode::train) keep({op.block, *op.stage, op.microbatch}, std::move(saved.tensors));
}

void Verbs::recompute_experts(const schedule::Recompute& op, const model::Stage& stage, const StageOperands& operands) {
  InFlight& now = in_flight(op.microbatch);
  const nn::Layer& of = layer(op.block, *op.stage);
  const store::ActivationStore::Key key{op.block, *op.stage, op.microbatch};
  nn::Saved saved{activations_.take(key)};
  if (stage.kind == StageKind::route) {
    nn::Route::Rows rows = of.route->forward(now.recomputed, operands.parameters, microbatch_for(stage, op.microbatch),
                                             nn::Mode::rebuild, saved);
    now.rows = std::move(rows.rows);
    now.row_weights = std::move(rows.weights);
  } else if (stage.kind == StageKind::experts) {
    (void)of.experts->forward(now.rows, now.row_weights, held_rows(op.block, op.microbatch), operands.parameters,
                              nn::Mode::rebuild, saved);
    drop_rows(now);
  } else {  // nobody reads what merge leaves
    now.recomputed.reset();
  }
  keep(key, std::move(saved.tensors));
}

void Verbs::backward_experts(const schedule::Backward& op, const model::Stage& stage, const StageOperands& operands) {
  InFlight& now = in_flight(op.microbatch);
  const nn::Layer& of = layer(op.block, *op.stage);
  std::vector<at::Tensor> saved = activations_.take({op.block, *op.stage, op.microbatch});
  if (stage.kind == StageKind::merge) {
    const Stage route{op.stage->value - 2};
    const store::ActivationStore::Key key{op.block, route, op.microbatch};
    std::vector<at::Tensor> of_route = activations_.take(key);
    now.by_expert = layer(op.block, route).route->rows_of(of_route);
    activations_.keep(key, std::move(of_route));
    now.rows = kernels::gather_rows(now.hidden, now.by_expert);
  } else if (stage.kind == StageKind::experts) {
    nn::HeldExperts::Gradients d = of.experts->backward(now.rows, held_rows(op.block, op.microbatch),
                                                        operands.parameters, operands.gradients, std::move(saved));
    now.rows = std::move(d.rows);
    now.row_weights = std::move(d.weights);
  } else {
    nn::Result result = of.route->backward(now.rows, now.row_weights, now.hidden, now.by_expert, operands.parameters,
                                           operands.gradients, microbatch(op.microbatch), saved);
    now.hidden = std::move(result.hidden);
    drop_rows(now);
    add_loss(result);
  }
}

nn::Result Verbs::forward_whole(const store::ActivationStore::Key& key, std::span<const at::Tensor> parameters,
                                at::Tensor hidden, nn::Mode mode, nn::Saved& saved) {
  const auto& [block, number, m] = key;
  const nn::Stage& whole = *layer(block, number).whole;
  const model::Stage& stage = model_[block].stages[static_cast<std::size_t>(number.value)];
  if (stage.kind != StageKind::moe) return whole.forward(std::move(hidden), parameters, microbatch(m), mode, saved);
  return whole.forward(std::move(hidden), parameters, microbatch_for(stage, m), mode, saved);
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
  if (comm::Collectives* const pipeline = links_.find({mesh::Group::pipeline, schedule::Lane::compute});
      pipeline != nullptr)
    pipeline->sum(sums);
  result.balance_loss = sums[0];
  result.router_z_loss = sums[1];
  auto next = sums.begin() + 2;
  for (auto& layer : result.expert_tokens)
    for (std::int64_t& tokens : layer) tokens = static_cast<std::int64_t>(*next++);
}

nn::Microbatch Verbs::microbatch_for(const model::Stage& stage, Microbatch m) {
  nn::Microbatch of = microbatch(m);
  of.choice_bias = store_.choice_bias(stage.parameters.front().block);
  return of;
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

void Verbs::drop_rows(InFlight& of) {
  of.rows.reset();
  of.row_weights.reset();
  of.by_expert = {};
}

void Verbs::run(const schedule::ExchangeCounts& op) {
  const nn::Microbatch& m = microbatch(op.microbatch);
  exchange_counts(link(mesh::Group::expert, schedule::Lane::expert), counts(op.block, op.microbatch),
                  m.batch * m.seq_len, model_[op.block].name);
}

void Verbs::run(const schedule::Dispatch& op) {
  const at::AutoDispatchBelowADInplaceOrView guard;
  const device::ChargeTo charge(device::Category::workspace);
  comm::Collectives& experts = link(mesh::Group::expert, schedule::Lane::expert);
  InFlight& now = in_flight(op.microbatch);
  const bool back = op.phase == schedule::Phase::backward;
  RowsAndWeights moved = (back ? from_experts : to_experts)(experts, counts(op.block, op.microbatch),
                                                            {.rows = now.rows, .weights = now.row_weights});
  now.rows = std::move(moved.rows);
  now.row_weights = std::move(moved.weights);
}

void Verbs::run(const schedule::Combine& op) {
  const at::AutoDispatchBelowADInplaceOrView guard;
  const device::ChargeTo charge(device::Category::workspace);
  if (options_.mode == nn::Mode::train) (void)fault::point("experts.combine");
  comm::Collectives& experts = link(mesh::Group::expert, schedule::Lane::expert);
  InFlight& now = in_flight(op.microbatch);
  const bool back = op.phase == schedule::Phase::backward;
  now.rows =
      (back ? to_experts : from_experts)(experts, counts(op.block, op.microbatch), {.rows = now.rows, .weights = {}})
          .rows;
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
