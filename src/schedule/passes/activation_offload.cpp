// SPDX-License-Identifier: Apache-2.0
// The pass that sends activations to host memory between forward and backward.
#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <type_traits>
#include <utility>

#include "trireme/model/activations.hpp"
#include "trireme/schedule/access.hpp"
#include "trireme/schedule/passes/passes.hpp"

namespace trireme::schedule {
namespace {

/// Compute blocks that save more than their input, in order: candidates for offload, except the last one.
std::vector<Block> layers(const model::Model& model) {
  std::vector<Block> out;
  for (int b = 0; b < model.blocks(); ++b)
    if (model::recomputes(model[Block{b}])) out.push_back(Block{b});
  return out;
}

/// Ops inserted before and after those of a block, forward and backward.
struct Around {
  std::vector<Block> drop;    ///< before its forward
  bool offload = false;       ///< after its forward
  std::vector<Block> reload;  ///< before its backward, which is behind that of the block whose memory they take
};

std::map<Block, Around> around(const model::Model& model, std::int64_t in_flight) {
  const std::vector<Block> layer = layers(model);
  std::map<Block, Around> out;
  const auto count = static_cast<std::int64_t>(layer.size());
  for (std::int64_t i = 0; i + 1 < count; ++i) {
    const Block block = layer[static_cast<std::size_t>(i)];
    const Block next{layer.back().value + 1};  // after the last layer
    const Block room = i + 1 + in_flight < count ? layer[static_cast<std::size_t>(i + 1 + in_flight)] : next;
    const Block hides = layer[static_cast<std::size_t>(std::min(i + in_flight, count - 1))];
    out[block].offload = true;
    out[room].drop.push_back(block);
    auto& reload = out[hides].reload;
    reload.insert(reload.begin(), block);  // backward needs the later block first
  }
  return out;
}

/// The block and microbatch of an op of a backward, or of the recompute and the exchanges before one. Loads are not
/// offloaded: their sum need not wait for the reload.
std::optional<std::pair<Block, Microbatch>> backward_of(const Op& op) {
  return std::visit(
      []<class Verb>(const Verb& verb) -> std::optional<std::pair<Block, Microbatch>> {
        if constexpr (std::is_same_v<Verb, Exchanged>)
          return verb.phase == Phase::forward || verb.kind == Exchange::sum_loads
                     ? std::nullopt
                     : std::optional(std::pair{verb.block, verb.microbatch});
        else if constexpr (std::is_same_v<Verb, Backward> || std::is_same_v<Verb, Recompute> ||
                           std::is_same_v<Verb, Rebuild>)
          return std::pair{verb.block, verb.microbatch};
        else
          return std::nullopt;
      },
      op);
}

template <class Compute>
bool ends_block(const Compute& op, const model::Model& model) {
  return !op.stage || op.stage->value + 1 == static_cast<int>(model[op.block].stages.size());
}

}  // namespace

Schedule insert_activation_offload(Schedule schedule, const model::Model& model, ActivationOffloadPolicy policy) {
  if (!policy.on) return schedule;
  std::map<Block, Around> of = around(model, policy.in_flight);
  std::vector<Op> ops;
  std::set<std::pair<Block, Microbatch>> back;
  for (const Op& op : schedule.ops) {
    const auto* forward = std::get_if<Forward>(&op);
    if (forward != nullptr && (!forward->stage || forward->stage->value == 0))
      for (const Block block : of[forward->block].drop) ops.emplace_back(DropActivations{block, forward->microbatch});
    if (const auto backward = backward_of(op); backward && back.insert(*backward).second)
      for (const Block block : of[backward->first].reload) {
        ops.emplace_back(AllocateActivations{block, backward->second});
        ops.emplace_back(ReloadActivations{block, backward->second});
      }
    ops.push_back(op);
    if (forward != nullptr && of[forward->block].offload && ends_block(*forward, model))
      ops.emplace_back(OffloadActivations{forward->block, forward->microbatch, policy.min_bytes});
  }
  schedule.ops = std::move(ops);
  return schedule;
}

}  // namespace trireme::schedule
