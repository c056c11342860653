// SPDX-License-Identifier: Apache-2.0
// Seconds of every verb.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "planner/activations.hpp"
#include "planner/exchanged.hpp"
#include "planner/time/stage_costs.hpp"
#include "trireme/base/error.hpp"
#include "trireme/planner/time/costs.hpp"
#include "trireme/schedule/access.hpp"
#include "trireme/shard/copies.hpp"

namespace trireme::planner {
namespace {

using mesh::Axis;

/// The cost of one op, verb by verb.
class OpCost {
 public:
  OpCost(const Costs::Of& of, const Machine& machine, const Software& software, Activations& activations,
         const std::optional<optimizer::OwnerPlan>& owners, std::vector<Term>* terms)
      : of_(of), machine_(machine), software_(software), activations_(activations), owners_(owners), terms_(terms) {}

  Cost operator()(const schedule::Unshard& op) const {
    if (op.in_place) return {};
    const Group group = op.from ? spread(*op.from, of_.mesh.stride(Axis::context)) : gathering(op.block);
    return gather("all-gather", group, f64(layout(op.block).gathered() * width()));
  }
  Cost operator()(const schedule::ReduceScatter& op) const {
    if (op.in_place) return {};
    return reduce("reduce-scatter", gathering(op.block), f64(layout(op.block).gathered()) * wire());
  }
  Cost operator()(const schedule::AllReduce& op) const {
    return all_reduce(along(Axis::replicate), f64(layout(op.block).shard_elements()) * wire());
  }
  Cost operator()(const schedule::AllReduceReplicated& op) const {
    const auto ranges = shard::copied_ranges(of_.model[op.block], layout(op.block), of_.replay_options.shard_rank);
    Cost sum;
    if (op.over == schedule::Copies::pipeline)
      return all_reduce(neighbours(), 4 * f64(layout(op.block).shard_elements()));
    if (!ranges.everywhere.empty()) add(sum, all_reduce(tensor(), 4 * f64(shard::elements(ranges.everywhere))));
    if (!ranges.in_groups.empty())
      add(sum, all_reduce(spread(ranges.group, 1), 4 * f64(shard::elements(ranges.in_groups))));
    return sum;
  }
  Cost operator()(const schedule::Exchanged& op) const {
    const schedule::ExchangeRow& row = schedule::row_of(op.kind);
    const Group group = exchanging(row.group);
    const double bytes = exchanged_bytes(op, row);
    switch (row.collective) {
      case schedule::Collective::all_gather: return gather(row.term, group, bytes);
      case schedule::Collective::reduce_scatter:  // that of the sequence is a ring on any machine
        return row.lane == schedule::Lane::tensor ? gather(row.term, group, bytes) : reduce(row.term, group, bytes);
      case schedule::Collective::all_reduce: return all_reduce(group, bytes);
      case schedule::Collective::all_to_all: return all_to_all(row.term, group, bytes);
    }
    throw BugError("an exchange is by a collective");
  }
  Cost operator()(const schedule::Forward& op) const { return compute(op, Phase::forward); }
  Cost operator()(const schedule::Recompute& op) const { return compute(op, Phase::recompute); }
  Cost operator()(const schedule::Backward& op) const {
    double bytes = 0;
    if (op.part != schedule::BackwardPart::input)
      for (const schedule::GradientTarget& target : op.gradients)
        bytes += (target.add ? software_.kernels.accumulate : software_.kernels.accumulate - 4) *
                 gradient_elements(op, target.block);
    Cost cost = compute(op, op.part == schedule::BackwardPart::input    ? Phase::backward_input
                            : op.part == schedule::BackwardPart::weight ? Phase::backward_weight
                                                                        : Phase::backward);
    if (bytes > 0) add(cost, moved("gradient sum", bytes, machine_.memory_bandwidth));
    return cost;
  }
  Cost operator()(const schedule::Rebuild&) const {
    const double bytes = 0.4 * software_.kernels.norm * f64(of_.replay_options.tokens * of_.model.sizes.hidden) /
                         (of_.model.part.sequence_parallel ? of_.mesh.tensor : 1);
    return moved("recomputed norm", bytes, machine_.memory_bandwidth);
  }

  // Between pipeline ranks. A receive ends with its send, which has the cost.
  Cost operator()(const schedule::Put&) const { return copied_slot(); }
  Cost operator()(const schedule::Take&) const { return copied_slot(); }
  Cost operator()(const schedule::Send&) const {
    const Link& link = neighbours().crosses_nodes() ? machine_.between : machine_.inside;
    const int sharing = neighbours().crosses_nodes() ? neighbours().sharing : 1;
    const double seconds = link.latency + held_stream() * sharing / link.bandwidth;
    if (terms_ != nullptr)
      note("send", seconds,
           fmt::format("{:.3g} us + {:.4g} B / ({:.4g} B/s / {})", link.latency * 1e6, held_stream(), link.bandwidth,
                       sharing));
    return {.seconds = seconds, .bytes = held_stream(), .wire = neighbours().wire()};
  }
  Cost operator()(const schedule::Receive&) const { return {}; }
  Cost operator()(const schedule::ClipNorm&) const {
    const int ranks = of_.mesh.ranks();
    const double latency = (spread(ranks, 1).crosses_nodes() ? machine_.between : machine_.inside).latency;
    const double bandwidth = of_.replay_options.on_gpu ? machine_.memory_bandwidth : machine_.host_memory_bandwidth;
    Cost cost = moved("norm of the gradient", 4 * f64(of_.layout.shard_elements()), bandwidth);
    cost.seconds += latency * std::log2(ranks);
    return cost;
  }
  Cost operator()(const schedule::Update& op) const {
    // The kernel's bytes are those of two moments in fp32, read and written.
    const std::int64_t elements = layout(op.block).shard_elements();
    const std::int64_t states = of_.replay_options.optimizer.state_bytes(of_.model[op.block], layout(op.block)).value;
    const std::int64_t saved = 2 * (8 * elements - states);
    const double bytes = software_.kernels.update * f64(elements) - f64(saved);
    if (op.on_host || !of_.replay_options.on_gpu)
      return in_host_memory("update", bytes, machine_.host_memory_bandwidth);
    return moved("update", bytes, machine_.memory_bandwidth);
  }
  /// Gradient and momentum are read, momentum and messages written.
  Cost operator()(const schedule::PrepareMatrices& op) const {
    const double bytes = pieces(op.of) * f64(12 + size_of(owners_->type()));
    return moved("momentum", bytes,
                 of_.replay_options.on_gpu ? machine_.memory_bandwidth : machine_.host_memory_bandwidth);
  }
  Cost operator()(const schedule::GatherMatrices& op) const { return exchange_matrices("matrices to owners", op.of); }
  Cost operator()(const schedule::ScatterMatrices& op) const {
    return exchange_matrices("matrices from owners", op.of);
  }
  /// The time of the slowest owner.
  Cost operator()(const schedule::Orthogonalize& op) const {
    const int window = owners_->window_of(op.of.first);
    const std::vector<double> seconds = newton_schulz_seconds(
        machine_, owners_->windows()[static_cast<std::size_t>(window)].matrices, owners_->ranks(), owners_->type());
    const auto slowest = std::ranges::max_element(seconds);
    if (terms_ != nullptr)
      note("Newton-Schulz", *slowest,
           fmt::format("{:.4g} FLOP of the slowest owner",
                       owners_->flops(window)[static_cast<std::size_t>(slowest - seconds.begin())]));
    return {.seconds = *slowest};
  }
  Cost operator()(const schedule::AllocateGradient&) const { return {}; }
  Cost operator()(const schedule::FreeGradient&) const { return {}; }
  Cost operator()(const schedule::SumSquares& op) const {
    return in_host_memory("squares", 4 * f64(layout(op.block).shard_elements()), machine_.host_memory_bandwidth);
  }
  Cost operator()(const schedule::Reshard& op) const {
    if (!op.to) return {};
    return moved("copy for the group", 2 * f64(layout(op.block).padded() / *op.to * width()),
                 machine_.memory_bandwidth);
  }
  Cost operator()(const schedule::Upload& op) const {
    return copied("upload", f64(layout(op.block).shard_elements() * width()));
  }
  Cost operator()(const schedule::OffloadGradient& op) const {
    return copied("gradients to the host", 4 * f64(layout(op.block).shard_elements()));
  }
  Cost operator()(const schedule::OffloadActivations& op) const {
    return copied("activations to the host", f64(activations_.away(op.block, op.microbatch).value));
  }
  Cost operator()(const schedule::ReloadActivations& op) const {
    return copied("activations from the host", f64(activations_.away(op.block, op.microbatch).value));
  }
  Cost operator()(const schedule::DropActivations&) const { return {}; }
  Cost operator()(const schedule::AllocateActivations&) const { return {}; }

 private:
  static void add(Cost& sum, const Cost& cost) {
    sum.seconds += cost.seconds;
    sum.bytes += cost.bytes;
    if (cost.wire != Wire::none) sum.wire = cost.wire;
    sum.host = std::max(sum.host, cost.host);
  }
  [[nodiscard]] const shard::BlockLayout& layout(ParamBlock block) const { return of_.layout[block]; }
  [[nodiscard]] const optimizer::MatrixWindow& window_of(const schedule::Matrices& of) const {
    return owners_->windows()[static_cast<std::size_t>(owners_->window_of(of.first))];
  }
  /// Elements of a rank's pieces, the mean over the ranks.
  [[nodiscard]] double pieces(const schedule::Matrices& of) const {
    double elements = 0;
    for (const optimizer::Matrix& matrix : window_of(of).matrices) elements += f64(matrix.elements());
    return elements / owners_->ranks();
  }
  [[nodiscard]] Cost exchange_matrices(std::string_view name, const schedule::Matrices& of) const {
    return all_to_all(name, spread(owners_->ranks(), 1), pieces(of) * f64(size_of(owners_->type())));
  }
  /// NCCL's own ring, where its sums are fp32: all else is an all-to-all and a sum of ours.
  [[nodiscard]] bool ring() const {
    return software_.ring_reduce_scatter ||
           (of_.replay_options.on_gpu && of_.replay_options.reduce == config::Reduce::fp32);
  }
  [[nodiscard]] std::int64_t width() const { return size_of(of_.replay_options.compute); }
  [[nodiscard]] double wire() const { return of_.replay_options.reduce == config::Reduce::fp32 ? 4 : 2; }
  [[nodiscard]] double stream() const { return f64(of_.replay_options.tokens * of_.model.sizes.hidden * width()); }
  [[nodiscard]] Group spread(int ranks, int stride) const {
    return group_of(ranks, stride, static_cast<int>(machine_.gpus_per_node));
  }
  /// The ranks that gather a block.
  [[nodiscard]] Group gathering(ParamBlock block) const {
    const model::ParameterBlock& of = of_.model[block];
    return spread(layout(block).gathering(), of.of_experts ? of.parts : of_.mesh.stride(Axis::context));
  }
  /// All rows of an exchange between expert ranks, those that stay among them.
  [[nodiscard]] double rows_moved(const schedule::Exchanged& op) const {
    const ExpertRows rows = of_.replay_options.rows_of(of_.model, op.block, op.microbatch);
    return f64(std::max(rows.sent, rows.fetched) * of_.mesh.expert) / std::max(1, of_.mesh.expert - 1);
  }
  /// Bytes of the whole tensor that ranks exchange; rows with their weights, if they have some.
  [[nodiscard]] double exchanged_bytes(const schedule::Exchanged& op, const schedule::ExchangeRow& row) const {
    if (row.pack == schedule::Layout::rows)
      return rows_moved(op) * f64(of_.model.sizes.hidden * width() + (op.kind == schedule::Exchange::dispatch ? 4 : 0));
    return f64(exchanged_elements(op, of_.model, of_.replay_options) *
               model::bytes_of(row.element, of_.replay_options.compute));
  }
  /// Neighbours, except for groups along an axis.
  [[nodiscard]] Group exchanging(mesh::Group group) const {
    if (group == mesh::Group::tensor) return tensor();
    if (group == mesh::Group::context) return along(Axis::context);
    return spread(ranks_of(group, of_.model.part), 1);
  }
  [[nodiscard]] Cost all_to_all(std::string_view name, const Group& group, double bytes) const {
    const Cost cost{.seconds = all_to_all_seconds(machine_, group, bytes),
                    .bytes = bytes * (group.ranks - 1) / group.ranks,
                    .wire = group.wire()};
    note_collective(name, group, bytes, cost.seconds);
    return cost;
  }
  [[nodiscard]] Group along(Axis axis) const { return spread(of_.mesh.size(axis), of_.mesh.stride(axis)); }
  [[nodiscard]] Group tensor() const { return along(Axis::tensor); }
  /// Two pipeline ranks: the slowest axis.
  [[nodiscard]] Group neighbours() const { return spread(2, of_.mesh.stride(Axis::pipeline)); }
  [[nodiscard]] double held_stream() const {
    return stream() / (of_.model.part.sequence_parallel ? of_.mesh.tensor : 1);
  }
  [[nodiscard]] Cost copied_slot() const {
    return moved("copy of the stream", 2 * held_stream(), machine_.memory_bandwidth);
  }

  void note(std::string_view name, double seconds, const std::string& formula) const {
    if (terms_ != nullptr) terms_->push_back({std::string(name), formula, seconds});
  }
  [[nodiscard]] Cost moved(std::string_view name, double bytes, double bandwidth) const {
    const double seconds = bytes / bandwidth;
    if (terms_ != nullptr) note(name, seconds, fmt::format("{:.4g} B / {:.4g} B/s", bytes, bandwidth));
    return {.seconds = seconds};
  }
  /// The ranks of a node with GPUs share its host memory bandwidth; rates of CPU ranks were achieved side by side.
  [[nodiscard]] Cost in_host_memory(const char* name, double bytes, double bandwidth) const {
    if (!of_.replay_options.on_gpu || machine_.node_bandwidth == 0) return moved(name, bytes, bandwidth);
    const double share = machine_.node_bandwidth / std::min(f64(of_.mesh.ranks()), machine_.gpus_per_node);
    Cost cost = moved(name, bytes, std::min(bandwidth, share));
    cost.host = std::min(bandwidth, share) / share;
    return cost;
  }
  [[nodiscard]] Cost copied(const char* name, double bytes) const {
    Cost cost = in_host_memory(name, bytes, machine_.host_bandwidth);
    cost.bytes = bytes;
    return cost;
  }
  void note_collective(std::string_view name, const Group& group, double bytes, double seconds) const {
    if (terms_ == nullptr) return;
    const Link& link = group.crosses_nodes() ? machine_.between : machine_.inside;
    note(name, seconds,
         fmt::format("{:.3g} us + {:.3g} us x {} + {:.4g} B x {}/{} / ({:.4g} B/s{})", link.latency * 1e6,
                     link.rank_latency * 1e6, group.ranks - 1, bytes, group.ranks - 1, group.ranks, link.bandwidth,
                     group.crosses_nodes() ? fmt::format(" / {} groups a node", group.sharing) : ""));
  }
  /// A group of one CPU rank copies: from the shard to the ring, or from the gradient to its shard.
  [[nodiscard]] Cost gather(std::string_view name, const Group& group, double bytes) const {
    if (group.ranks == 1 && of_.replay_options.on_gpu) return {};
    if (group.ranks == 1) return moved(name, bytes, machine_.host_bandwidth);
    const Cost cost{.seconds = ring_seconds(machine_, group, bytes),
                    .bytes = bytes * (group.ranks - 1) / group.ranks,
                    .wire = group.wire()};
    note_collective(name, group, bytes, cost.seconds);
    return cost;
  }
  [[nodiscard]] Cost reduce(std::string_view name, const Group& group, double bytes) const {
    if (ring() || group.ranks == 1) return gather(name, group, bytes);
    const double sum = bytes * (1 + 1.0 / group.ranks) / machine_.memory_bandwidth;
    const Cost cost{.seconds = all_to_all_seconds(machine_, group, bytes) + sum,
                    .bytes = bytes * (group.ranks - 1) / group.ranks,
                    .wire = group.wire()};
    note_collective(group.crosses_nodes() ? "reduce-scatter (all-to-all: x ranks of a node between nodes)" : name,
                    group, bytes, cost.seconds);
    return cost;
  }
  [[nodiscard]] Cost all_reduce(const Group& group, double bytes) const {
    Cost cost = reduce("all-reduce, first half", group, bytes);
    add(cost, gather("all-reduce, second half", group, bytes));
    return cost;
  }

  template <class Verb>
  [[nodiscard]] Cost compute(const Verb& op, Phase phase) const {
    return {.seconds = stage_seconds({of_, machine_, software_}, op.block, op.stage, phase, terms_)};
  }
  [[nodiscard]] double gradient_elements(const schedule::Backward& op, ParamBlock target) const {
    const schedule::StageRange range = schedule::stages_of(of_.model[op.block], op.stage);
    double elements = 0;
    for (int s = range.first; s < range.last; ++s) {
      const model::Stage& stage = of_.model[op.block].stages[static_cast<std::size_t>(s)];
      for (const model::ParamRef ref : stage.parameters)
        if (ref.block == target && !model::looks_up(stage.kind))
          elements += f64(of_.model[ref].elements()) / of_.model[target].parts;
    }
    return elements;
  }

  const Costs::Of& of_;
  const Machine& machine_;
  const Software& software_;
  Activations& activations_;
  const std::optional<optimizer::OwnerPlan>& owners_;  ///< with Muon
  std::vector<Term>* terms_;
};

}  // namespace

std::vector<Cost> Costs::of(const schedule::Schedule& schedule, std::vector<std::vector<Term>>* terms) const {
  std::vector<Cost> out;
  out.reserve(schedule.ops.size());
  Activations activations(of_.model, of_.replay_options);
  std::optional<optimizer::OwnerPlan> owners;
  if (of_.replay_options.optimizer.matrices())
    owners.emplace(of_.model, of_.layout, *of_.replay_options.optimizer.matrices());
  for (const schedule::Op& op : schedule.ops) {
    (void)activations.most_during(op);
    if (terms != nullptr) terms->emplace_back();
    out.push_back(std::visit(
        OpCost(of_, machine_, software_, activations, owners, terms == nullptr ? nullptr : &terms->back()), op));
  }
  return out;
}

}  // namespace trireme::planner
