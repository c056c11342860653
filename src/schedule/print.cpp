// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <array>

#include "trireme/base/hash.hpp"
#include "trireme/schedule/text.hpp"

namespace trireme::schedule {
namespace {

struct Print {
  const model::Model& model;

  [[nodiscard]] std::string compute(std::string_view verb, Block block, const std::optional<Stage>& stage,
                                    Microbatch m) const {
    const model::ComputeBlock& b = model[block];
    const std::string part = stage ? "." + b.stages[static_cast<std::size_t>(stage->value)].name : "";
    return fmt::format("{} {}{} m{}", verb, b.name, part, m.value);
  }

  static std::string slot(std::string_view kind, Slot s) { return fmt::format("{}{}.{}", kind, s.ring, s.index); }
  static std::string staged(const std::optional<Slot>& s) { return s ? " -> " + slot("down", *s) : ""; }

  std::string operator()(const Unshard& op) const {
    const std::string from = op.from ? fmt::format(" from {}", *op.from) : "";
    const std::string staged = op.staged ? " <- " + slot("up", *op.staged) : "";
    return fmt::format("unshard {}{}{} -> {}", model[op.block].name, from, staged, slot("ring", op.slot));
  }
  std::string operator()(const Reshard& op) const {
    return fmt::format("reshard {}{}", model[op.block].name, op.to ? fmt::format(" to {}", *op.to) : "");
  }
  std::string operator()(const Forward& op) const {
    constexpr std::array keeps{" keep input", "", " keep all"};
    return compute("forward", op.block, op.stage, op.microbatch) + keeps.at(static_cast<std::size_t>(op.keep));
  }
  std::string operator()(const Recompute& op) const { return compute("recompute", op.block, op.stage, op.microbatch); }
  std::string operator()(const Backward& op) const {
    constexpr std::array verbs{"backward", "backward_input", "backward_weight"};
    std::string text = compute(verbs[static_cast<std::size_t>(op.part)], op.block, op.stage, op.microbatch);
    for (std::size_t i = 0; i < op.gradients.size(); ++i) {
      const GradientTarget& t = op.gradients[i];
      text += fmt::format("{} {} grad{}.{}{}", i == 0 ? " ->" : ",", model[t.block].name, t.slot.ring, t.slot.index,
                          t.add ? " add" : "");
    }
    return text;
  }
  std::string operator()(const ReduceScatter& op) const {
    return fmt::format("reduce_scatter {} <- {}{}{}", model[op.block].name, slot("grad", op.slot),
                       op.add ? " add" : (op.partial ? " partial" : ""), staged(op.staged));
  }
  std::string operator()(const AllReduce& op) const {
    return fmt::format("all_reduce {}{}{}", model[op.block].name, op.partial ? " partial" : "", staged(op.staged));
  }
  /// A collective of the tensor axis: `gather_sequence b0.attention m0 again`.
  template <class Verb>
  [[nodiscard]] std::string tensor(std::string_view verb, const Verb& op) const {
    constexpr std::array passes{"", " backward", " again", " recompute"};
    return compute(verb, op.block, op.stage, op.microbatch) + passes[static_cast<std::size_t>(op.pass)];
  }
  std::string operator()(const GatherSequence& op) const { return tensor("gather_sequence", op); }
  std::string operator()(const ScatterSequence& op) const { return tensor("scatter_sequence", op); }
  std::string operator()(const AllReduceActivation& op) const { return tensor("all_reduce_activation", op); }
  std::string operator()(const GatherVocabulary& op) const {
    return compute("gather_vocabulary", op.block, op.stage, op.microbatch);
  }
  std::string operator()(const ForwardAgain& op) const {
    return compute("forward_again", op.block, op.stage, op.microbatch);
  }
  std::string operator()(const SumCopies& op) const { return fmt::format("sum_copies {}", model[op.block].name); }
  std::string operator()(const ClipNorm&) const { return "clip_norm"; }
  std::string operator()(const Update& op) const {
    return fmt::format("update {}{}", model[op.block].name, op.on_host ? " on host" : "");
  }
  std::string operator()(const Upload& op) const {
    return fmt::format("upload {}{}", model[op.block].name, op.staged ? " -> " + slot("up", *op.staged) : "");
  }
  std::string operator()(const OffloadGradient& op) const {
    return fmt::format("offload_gradient {} <- {}{}", model[op.block].name, slot("down", op.slot),
                       op.add ? " add" : "");
  }
  std::string operator()(const SumSquares& op) const { return fmt::format("sum_squares {}", model[op.block].name); }
  std::string operator()(const OffloadActivations& op) const {
    return fmt::format("offload {} m{} min {}", model[op.block].name, op.microbatch.value, op.min_bytes.value);
  }
  std::string operator()(const DropActivations& op) const {
    return fmt::format("drop {} m{}", model[op.block].name, op.microbatch.value);
  }
  std::string operator()(const ReloadActivations& op) const {
    return fmt::format("reload {} m{} after {}", model[op.block].name, op.microbatch.value, model[op.after].name);
  }
};

}  // namespace

std::string print(const Op& op, const model::Model& model) { return std::visit(Print{model}, op); }

std::string print(const Schedule& schedule, const model::Model& model) {
  std::string text = fmt::format("step microbatches={}\n", schedule.microbatches);
  for (const Op& op : schedule.ops) text += print(op, model) + "\n";
  return text;
}

std::uint64_t hash(const Schedule& schedule, const model::Model& model) { return fnv1a(print(schedule, model)); }

}  // namespace trireme::schedule
