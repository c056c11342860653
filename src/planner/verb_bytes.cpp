// SPDX-License-Identifier: Apache-2.0
#include "planner/verb_bytes.hpp"

#include <utility>
#include <variant>

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
      activations_(model, replay_options) {}

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
void VerbBytes::add(const schedule::RecomputeNorm&) {}

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

// The tensor axis.
void VerbBytes::add(const schedule::GatherSequence&) {
  transfer(mesh::Group::tensor, "all_gather", stream_ / model_.part.ranks * width_ * (model_.part.ranks - 1));
}
void VerbBytes::add(const schedule::ScatterSequence&) {
  transfer(mesh::Group::tensor, "reduce_scatter", stream_ / model_.part.ranks * width_ * (model_.part.ranks - 1));
}
void VerbBytes::add(const schedule::AllReduceActivation&) {
  transfer(mesh::Group::tensor, "all_reduce", all_reduce_bytes(stream_, width_, model_.part.ranks));
}
void VerbBytes::add(const schedule::AllReduceStatistics&) {  // fp32, of queries and of keys
  transfer(mesh::Group::tensor, "all_reduce", all_reduce_bytes(2 * replay_options_.tokens, 4, model_.part.ranks));
}
void VerbBytes::add(const schedule::GatherVocabulary&) {
  transfer(mesh::Group::tensor, "all_gather", replay_options_.tokens * 3 * 4 * (model_.part.ranks - 1));
}
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

// The context axis.
std::int64_t VerbBytes::sent_keys() const {
  return replay_options_.tokens * 2 * model_.held.kv_heads * model_.held.head_dim * (model_.part.context.ranks - 1);
}
void VerbBytes::add(const schedule::GatherKeys&) { transfer(mesh::Group::context, "all_gather", sent_keys() * width_); }
void VerbBytes::add(const schedule::ScatterKeys&) {
  transfer(mesh::Group::context, "reduce_scatter", sent_keys() * width_);
}
void VerbBytes::add(const schedule::ExchangeHeads& op) {
  const std::int64_t ranks = model_.part.context.ranks;
  transfer(mesh::Group::context, "all_to_all",
           replay_options_.tokens * model::exchanged_width(model_, op.block, op.stage) / ranks * (ranks - 1) * width_);
}

// Between expert ranks: rows in the compute dtype, with their weights in fp32; on a GPU these by themselves.
void VerbBytes::all_to_all(std::int64_t bytes) { transfer(mesh::Group::expert, "all_to_all", bytes); }
void VerbBytes::add(const schedule::SumLoads&) {
  const int ranks = model_.part.context.ranks * model_.part.ranks;
  transfer(mesh::Group::sequence, "all_reduce",
           all_reduce_bytes(replay_options_.sequences * model_.sizes.decoder.experts->count, 4, ranks));
}
void VerbBytes::add(const schedule::ExchangeCounts&) {
  const model::ExpertPart& part = model_.part.experts;
  all_to_all(part.held(model_.sizes.decoder.experts->count) * (part.ranks - 1) * 4);
}
void VerbBytes::add(const schedule::Dispatch& op) {
  const ExpertRows rows = replay_options_.rows_of(model_, op.block, op.microbatch);
  const std::int64_t sent = op.phase == schedule::Phase::backward ? rows.fetched : rows.sent;
  const std::int64_t row = model_.sizes.hidden * width_;
  if (!replay_options_.on_gpu) return all_to_all(sent * (row + 4));
  all_to_all(sent * row);
  all_to_all(sent * 4);
}
void VerbBytes::add(const schedule::Combine& op) {
  const ExpertRows rows = replay_options_.rows_of(model_, op.block, op.microbatch);
  all_to_all((op.phase == schedule::Phase::backward ? rows.sent : rows.fetched) * model_.sizes.hidden * width_);
}

// The pipeline axis.
void VerbBytes::add(const schedule::Send&) { pass("send", held_stream_ * width_); }

}  // namespace trireme::planner
