// SPDX-License-Identifier: Apache-2.0
// The stages of a layer of experts, and the exchanges between them.
#include <ATen/core/Tensor.h>

#include <numeric>

#include "executor/expert_rows.hpp"
#include "executor/verbs.hpp"
#include "trireme/base/fault.hpp"
#include "trireme/device/memory.hpp"
#include "trireme/kernels/experts.hpp"

namespace trireme::executor {
namespace {

using model::does, model::Work;
using enum model::TensorId;

}  // namespace

RowCounts& Verbs::counts(Block block, Microbatch m) {
  return counts_[static_cast<std::size_t>(block.value * schedule_.microbatches + m.value)];
}

nn::Routing& Verbs::routing_for(const StageOperands& of, Block block, Microbatch m, schedule::Phase phase,
                                nn::Routing& of_stage) {
  if (phase == schedule::Phase::forward && does(*of.spec, Work::router))
    counts(block, m).to.clear();  // of the last step
  if (model::receives_rows(*of.spec)) of_stage.received = held_rows(block, m);
  const bool is_between = model::is_of_experts(of.spec->kind) && !model::receives_rows(*of.spec);
  return is_between && phase != schedule::Phase::recompute ? values(m).routing() : of_stage;
}

void Verbs::note_choice(const schedule::Forward& op, const StageOperands& of, nn::Kept& kept,
                        const nn::Routing& of_stage) {
  const auto& [block, m] = std::pair(op.block, op.microbatch);
  const bool trains = options_.mode == nn::Mode::train;
  RowCounts& rows = counts(block, m);
  if (does(*of.spec, Work::router)) {
    const kernels::ExpertRows& places = does(*of.spec, Work::experts) ? of_stage.rows : values(m).routing().rows;
    // On a GPU whose ranks divide the experts they are not here before counts are exchanged.
    for (std::size_t e = 0; e + 1 < places.begin.size(); ++e) rows.to.push_back(places.begin[e + 1] - places.begin[e]);
    if (trains && of.spec->sums_loads) {
      const nn::Microbatch batch = microbatch_for(of, block, m);
      rows.loads = kernels::sequence_loads(kept[chosen_experts], {.length = batch.seq_len, .first = batch.first_token},
                                           batch.batch, model_.sizes.decoder.experts->count);
    }
  }
  if (model::only_sums_rows(*of.spec)) values(m).routing() = {};
  if (!trains || !does(*of.spec, Work::experts)) return;
  std::vector<std::int64_t>& tokens = state_.result.expert_tokens[static_cast<std::size_t>(model_[block].layer)];
  for (std::size_t e = 0; e < tokens.size(); ++e) tokens[e] += rows.to[e];
}

void Verbs::sum_experts() {
  StepResult& result = state_.result;
  std::vector<double> sums{state_.losses.balance, state_.losses.router_z};
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

nn::Microbatch Verbs::microbatch_for(const StageOperands& of, Block block, Microbatch m) {
  nn::Microbatch batch = microbatch(m);
  if (!does(*of.spec, Work::router) && !model::only_sums_rows(*of.spec)) return batch;
  batch.expert_tokens = counts(block, m).to;
  if (model::only_sums_rows(*of.spec)) return batch;
  const model::Stage& stage = *of.spec;
  batch.choice_bias = choice_bias(stage.parameters.front().block);
  if (model_.part.sequence_parallel) batch.first_token = model_.part.rank * stream_tokens(m);
  if (stage.sums_loads) batch.loads = counts(block, m).loads;
  return batch;
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
      if (!does(stage, Work::router)) continue;
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
  kernels::ExpertRows& mine = values(op.microbatch).routing().rows;
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
