// SPDX-License-Identifier: Apache-2.0
#include "schedule/verify/host_check.hpp"

#include <fmt/format.h>

#include "trireme/schedule/buffers.hpp"

namespace trireme::schedule {

HostCheck::HostCheck(const Schedule& schedule, const model::Model& model, int replicas, bool slots)
    : model_(model), replicas_(replicas), slots_(slots), on_host_(on_host(schedule, model)) {
  for (const Op& op : schedule.ops)
    if (const auto* update = std::get_if<Update>(&op); update != nullptr && update->on_host)
      host_updates_.insert(update->block);
}

HostCheck::Wrong HostCheck::operator()(const Unshard& op) {
  if (!op.staged) return {};
  const auto found = staged_.find(op.block);
  if (found == staged_.end()) return {"gathers from a shard that was not uploaded"};
  Wrong wrong;
  if (slots_ && found->second != *op.staged)
    wrong.emplace_back("gathers from a slot that does not hold the block's shard");
  staged_.erase(found);
  return wrong;
}

HostCheck::Wrong HostCheck::operator()(const Upload& op) {
  Wrong wrong;
  if (updated_.contains(op.block) == op.staged.has_value() && !host_updates_.empty())
    wrong.emplace_back(op.staged ? "uploads for a gather after the update: the next step does that"
                                 : "uploads before the update, which it misses");
  if (!op.staged) {
    uploaded_.insert(op.block);
    return wrong;
  }
  for (const auto& [block, slot] : staged_)
    if (slots_ && slot == *op.staged)
      wrong.push_back(fmt::format("overwrites the shard of {} in its slot", name(block)));
  if (!staged_.emplace(op.block, *op.staged).second) wrong.emplace_back("uploads a shard that waits for its gather");
  return wrong;
}

HostCheck::Wrong HostCheck::operator()(const ReduceScatter& op) {
  const bool expected = host_updates_.contains(op.block);
  if (!op.staged) {
    if (!expected) return {};
    return {"leaves a gradient on the device whose update is on the host"};
  }
  Wrong wrong;
  for (const auto& [block, waiting] : waiting_)
    if (slots_ && waiting.slot == *op.staged)
      wrong.push_back(fmt::format("overwrites the gradient shard of {} on its way to the host", name(block)));
  waiting_[op.block] = {.slot = *op.staged};
  return wrong;
}

HostCheck::Wrong HostCheck::operator()(const AllReduce& op) {
  const auto waiting = waiting_.find(op.block);
  if (!op.staged) {
    if (waiting != waiting_.end()) return {"misses the gradient shard on its way to the host"};
    unsummed_.erase(op.block);
    return {};
  }
  if (waiting == waiting_.end() || (slots_ && waiting->second.slot != *op.staged))
    return {"sums a slot that does not hold the block's gradient shard"};
  waiting->second.summed = true;
  summed_.insert(op.block);
  return {};
}

HostCheck::Wrong HostCheck::operator()(const OffloadGradient& op) {
  const auto waiting = waiting_.find(op.block);
  if (waiting == waiting_.end() || (slots_ && waiting->second.slot != op.slot))
    return {"copies a slot that does not hold the block's gradient shard"};
  Wrong wrong;
  const bool first = arrived_.insert(op.block).second;
  if (first && op.add) wrong.emplace_back("adds to a gradient on the host that was never written in this step");
  if (!first && !op.add) wrong.emplace_back("overwrites a gradient that came to the host before");
  if (replicas_ > 1 && !waiting->second.summed) unsummed_.insert(op.block);
  if (replicas_ > 1 && !waiting->second.summed && summed_.contains(op.block))
    wrong.emplace_back("adds a gradient that replicas have not summed to one that they have");
  waiting_.erase(waiting);
  return wrong;
}

HostCheck::Wrong HostCheck::operator()(const AllReduceReplicated& op) {
  copies_summed_.insert({op.block, op.over});
  if (!host_updates_.contains(op.block)) return {};
  if (!arrived_.contains(op.block) || waiting_.contains(op.block))
    return {"misses a gradient that is not on the host yet"};
  if (unsummed_.contains(op.block)) return {"comes before the replicas have summed the gradient"};
  return {};
}

HostCheck::Wrong HostCheck::operator()(const SumSquares& op) {
  squared_.insert(op.block);
  if (!arrived_.contains(op.block) || waiting_.contains(op.block))
    return {"misses a gradient that is not on the host yet"};
  if (unsummed_.contains(op.block)) return {"comes before the replicas have summed the gradient"};
  if (model::has_replicated_gradients(model_[op.block]) && !copies_summed_.contains({op.block, Copies::tensor}))
    return {"comes before the copies on the tensor axis have summed the gradient"};
  if (model_[op.block].on_two_pipeline_ranks && !copies_summed_.contains({op.block, Copies::pipeline}))
    return {"comes before the pipeline ranks have summed the gradient"};
  return {};
}

HostCheck::Wrong HostCheck::operator()(const ClipNorm&) {
  Wrong wrong;
  for (const ParamBlock block : host_updates_)
    if (!squared_.contains(block)) wrong.push_back(fmt::format("misses the squares of {} on the host", name(block)));
  return wrong;
}

HostCheck::Wrong HostCheck::operator()(const Update& op) {
  updated_.insert(op.block);
  if (op.on_host && op.beside) return {"updates both on the host and concurrently with the forward"};
  if (op.on_host == arrived_.contains(op.block)) return {};
  return {op.on_host ? "updates on the host, where no gradient is"
                     : "updates on the device; the gradient is on the host"};
}

HostCheck::Wrong HostCheck::operator()(const OffloadActivations& op) {
  if (away_.emplace(std::pair{op.block, op.microbatch}, Way::copied).second) return {};
  return {"copies activations to the host a second time"};
}

HostCheck::Wrong HostCheck::operator()(const DropActivations& op) {
  const auto found = away_.find({op.block, op.microbatch});
  if (found == away_.end() || found->second != Way::copied) return {"drops activations that are not on the host"};
  found->second = Way::dropped;
  return {};
}

HostCheck::Wrong HostCheck::operator()(const AllocateActivations& op) {
  const auto found = away_.find({op.block, op.microbatch});
  if (found == away_.end() || found->second != Way::dropped) return {"allocates activations that were not dropped"};
  found->second = Way::allocated;
  return {};
}

HostCheck::Wrong HostCheck::operator()(const ReloadActivations& op) {
  const auto found = away_.find({op.block, op.microbatch});
  if (found == away_.end() || found->second != Way::allocated)
    return {"reloads activations whose memory was not allocated again"};
  away_.erase(found);
  return {};
}

HostCheck::Wrong HostCheck::reads(Block block, Microbatch microbatch) {
  if (!away_.contains({block, microbatch})) return {};
  return {"reads activations that are in host memory"};
}

HostCheck::Wrong HostCheck::at_end() const {
  Wrong wrong;
  for (const ParamBlock block : host_updates_)
    if (on_host_[static_cast<std::size_t>(block.value)] != OnHost::parameters && !uploaded_.contains(block))
      wrong.push_back(fmt::format("{} was updated on the host and not uploaded", name(block)));
  for (const auto& [block, waiting] : waiting_)
    wrong.push_back(fmt::format("the gradient shard of {} never came to the host", name(block)));
  for (const auto& [key, way] : away_)
    wrong.push_back(
        fmt::format("the activations of {} m{} stay on the host", model_[key.first].name, key.second.value));
  return wrong;
}

}  // namespace trireme::schedule
