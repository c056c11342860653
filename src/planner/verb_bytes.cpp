// SPDX-License-Identifier: Apache-2.0
#include "planner/verb_bytes.hpp"

#include <utility>
#include <variant>

#include "planner/exchanged.hpp"
#include "trireme/shard/copies.hpp"

namespace trireme::planner {
namespace {

std::int64_t all_reduce_bytes(std::int64_t elements, std::int64_t element_bytes, int ranks) {
  return 2 * ((elements + ranks - 1) / ranks) * element_bytes * (ranks - 1);
}

}  // namespace

VerbBytes::VerbBytes(const model::Model& model, const shard::Layout& layout, const ReplayOptions& replay_options)
    : model_(model),
      layout_(layout),
      replay_options_(replay_options),
      stream_(replay_options.tokens * model.sizes.hidden),
      held_stream_(model.part.sequence_parallel ? stream_ / model.part.ranks : stream_),
      width_(size_of(replay_options.compute)),
      wire_(replay_options.reduce == config::Reduce::fp32 ? 4 : 2),
      activations_(model, replay_options) {
  if (replay_options.optimizer.matrices()) owners_.emplace(model, layout, *replay_options.optimizer.matrices());
}

OpBytes VerbBytes::of(const schedule::Op& op) {
  bytes_ = {.activations = activations_.most_during(op)};
  std::visit([this](const auto& verb) { add(verb); }, op);
  return std::exchange(bytes_, {});
}

void VerbBytes::transfer(mesh::Group group, std::string_view operation, std::int64_t bytes) {
  bytes_.transfers.push_back({mesh::row_of(group).traffic, operation, Bytes{bytes}});
}

void VerbBytes::copy(std::string_view operation, std::int64_t bytes) {
  bytes_.transfers.push_back({"host", operation, Bytes{bytes}});
}

void VerbBytes::pass(std::string_view operation, std::int64_t bytes) {
  bytes_.transfers.push_back({"pipeline", operation, Bytes{bytes}});
}

// Compute.
void VerbBytes::add(const schedule::Forward&) {}
void VerbBytes::add(const schedule::Recompute&) {}
void VerbBytes::add(const schedule::Backward&) {}

// Parameters and gradients.
void VerbBytes::add(const schedule::Unshard& op) {
  if (op.in_place) return;
  const shard::BlockLayout& layout = layout_[op.block];
  const int ranks = op.from.value_or(layout.gathering());
  transfer(op.from ? mesh::Group::shard_group : shard::gathering_group(model_[op.block]), "all_gather",
           layout.gathered() / ranks * width_ * (ranks - 1));
}
void VerbBytes::add(const schedule::Reshard&) {}
void VerbBytes::add(const schedule::ReduceScatter& op) {
  if (op.in_place) return;
  const shard::BlockLayout& layout = layout_[op.block];
  transfer(shard::gathering_group(model_[op.block]), "reduce_scatter",
           layout.shard_elements() * wire_ * (layout.gathering() - 1));
}
void VerbBytes::add(const schedule::AllReduce& op) {
  transfer(mesh::Group::replicate, "all_reduce",
           all_reduce_bytes(layout_[op.block].shard_elements(), wire_, replay_options_.replicas));
}
void VerbBytes::add(const schedule::Update&) {}
void VerbBytes::add(const schedule::GatherMatrices& op) {
  const int rank = owners_->rank_of(replay_options_.shard_rank);
  transfer(mesh::Group::fold, "all_to_all",
           owners_->sent(owners_->window_of(op.of.first), rank).pieces * size_of(owners_->type()));
}
void VerbBytes::add(const schedule::ScatterMatrices& op) {
  const int rank = owners_->rank_of(replay_options_.shard_rank);
  transfer(mesh::Group::fold, "all_to_all",
           owners_->sent(owners_->window_of(op.of.first), rank).owned * size_of(owners_->type()));
}

// Between device and host.
void VerbBytes::add(const schedule::Upload& op) { copy("upload", layout_[op.block].shard_elements() * width_); }
void VerbBytes::add(const schedule::OffloadGradient& op) {
  copy("offload_gradient", layout_[op.block].shard_elements() * 4);
}
void VerbBytes::add(const schedule::SumSquares&) {}
void VerbBytes::add(const schedule::OffloadActivations& op) {
  copy("offload", activations_.away(op.block, op.microbatch).value);
}
void VerbBytes::add(const schedule::DropActivations&) {}
void VerbBytes::add(const schedule::ReloadActivations& op) {
  copy("reload", activations_.away(op.block, op.microbatch).value);
}

// Between stages.
void VerbBytes::add(const schedule::Exchanged& op) {
  const schedule::ExchangeRow& row = schedule::row_of(op.kind);
  if (row.pack == schedule::Layout::rows) return add_rows(op);
  const std::int64_t elements = exchanged_elements(op, model_, replay_options_),
                     width = model::bytes_of(row.element, replay_options_.compute);
  const int ranks = ranks_of(row.group, model_.part);
  transfer(row.group, to_text(row.collective),
           row.collective == schedule::Collective::all_reduce ? all_reduce_bytes(elements, width, ranks)
                                                              : elements / ranks * width * (ranks - 1));
}
void VerbBytes::add_rows(const schedule::Exchanged& op) {
  const schedule::ExchangeRow& row = schedule::row_of(op.kind);
  const ExpertRows rows = replay_options_.rows_of(model_, op.block, op.microbatch);
  const bool to_experts = (op.kind == schedule::Exchange::dispatch) != (op.phase == schedule::Phase::backward);
  const std::int64_t count = to_experts ? rows.sent : rows.fetched, bytes = count * model_.sizes.hidden * width_;
  const std::int64_t weights = op.kind == schedule::Exchange::dispatch ? count * 4 : 0;
  const auto send = [&](std::int64_t sent) { transfer(row.group, to_text(row.collective), sent); };
  if (!replay_options_.on_gpu) return send(bytes + weights);
  send(bytes);
  if (op.kind == schedule::Exchange::dispatch) send(weights);
}

// Copies of parameters.
void VerbBytes::add(const schedule::AllReduceReplicated& op) {
  if (op.over == schedule::Copies::pipeline)
    return pass("all_reduce", all_reduce_bytes(layout_[op.block].shard_elements(), 4, 2));
  const auto ranges = shard::copied_ranges(model_[op.block], layout_[op.block], replay_options_.shard_rank);
  if (!ranges.everywhere.empty())
    transfer(mesh::Group::tensor, "all_reduce",
             all_reduce_bytes(shard::elements(ranges.everywhere), 4, model_.part.ranks));
  if (!ranges.in_groups.empty())
    transfer(mesh::Group::tensor_group, "all_reduce",
             all_reduce_bytes(shard::elements(ranges.in_groups), 4, ranges.group));
}

// The pipeline axis.
void VerbBytes::add(const schedule::Send&) { pass("send", held_stream_ * width_); }

}  // namespace trireme::planner
