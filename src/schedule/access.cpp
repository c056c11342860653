// SPDX-License-Identifier: Apache-2.0
#include "trireme/schedule/access.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "trireme/base/error.hpp"
#include "trireme/schedule/text.hpp"

namespace trireme::schedule {
namespace {

void add_once(std::vector<ParamBlock>& blocks, ParamBlock block) {
  if (std::find(blocks.begin(), blocks.end(), block) == blocks.end()) blocks.push_back(block);
}

std::vector<ParamBlock> blocks_of(const model::ComputeBlock& block, StageRange range) {
  std::vector<ParamBlock> found;
  for (int s = range.first; s < range.last; ++s)
    for (const model::ParamRef ref : block.stages[static_cast<std::size_t>(s)].parameters) add_once(found, ref.block);
  return found;
}

/// Follows where each parameter block lies while the ops are walked.
class Residence {
 public:
  void enter(const Unshard& op) { slots_[op.block] = op.slot; }
  void leave(ParamBlock block) { slots_.erase(block); }
  [[nodiscard]] Resource slot(ParamBlock block, const Op& reader, const model::Model& model) const {
    const auto found = slots_.find(block);
    invariant(found != slots_.end(),
              fmt::format("`{}` reads {}, which is not unsharded", print(reader, model), model[block].name));
    return {Resource::Kind::parameter_slot, found->second.ring, found->second.index};
  }

 private:
  std::map<ParamBlock, Slot> slots_;
};

struct AccessOf {
  const model::Model& model;
  Residence& residence;
  const Op& op;
  Access out{};

  void read(Resource resource) { out.reads.push_back(resource); }
  void write(Resource resource) { out.writes.push_back(resource); }
  void update(Resource resource) { read(resource), write(resource); }

  static Resource staged(Resource::Kind kind, Slot slot) { return {kind, slot.ring, slot.index}; }
  static Resource gradient(Slot slot) { return {Resource::Kind::gradient_slot, slot.ring, slot.index}; }

  template <class Compute>
  void compute(const Compute& op_, Resource::Kind stream, bool reads_saved) {
    for (const ParamBlock block : parameters_read(op, model)) read(residence.slot(block, op, model));
    update({stream, op_.microbatch.value});
    const StageRange range = stages_of(model[op_.block], op_.stage);
    for (int s = range.first; s < range.last; ++s) {
      const Resource saved{Resource::Kind::saved, op_.block.value, s, op_.microbatch.value};
      if (reads_saved) read(saved);
      write(saved);
    }
  }

  void operator()(const Unshard& unshard) {
    residence.enter(unshard);
    if (unshard.from) {
      read({Resource::Kind::group_copy, unshard.block.value});
    } else if (unshard.staged) {
      update(staged(Resource::Kind::upload_slot, *unshard.staged));
    } else {
      read({Resource::Kind::master_shard, unshard.block.value});
      read({Resource::Kind::device_shard, unshard.block.value});
    }
    write({Resource::Kind::parameter_slot, unshard.slot.ring, unshard.slot.index});
  }
  void operator()(const Reshard& reshard) {
    const Resource slot = residence.slot(reshard.block, op, model);
    if (reshard.to) {
      read(slot);
      write({Resource::Kind::group_copy, reshard.block.value});
    }
    write(slot);
    residence.leave(reshard.block);
  }
  /// What the one stage of an op reads and writes besides parameters and gradients, where tensor parallelism cut it.
  void cut_forward(const Forward& forward, const model::Stage& stage) {
    using Kind = Resource::Kind;
    const int m = forward.microbatch.value;
    for (const ParamBlock block : parameters_read(op, model)) read(residence.slot(block, op, model));
    if (stage.kind == model::StageKind::norm) read({Kind::hidden, m});
    if (stage.kind == model::StageKind::embedding || stage.kind == model::StageKind::logits)
      write({Kind::hidden, m});  // nothing is left of it
    if (model::is_branch(stage.kind) || stage.kind == model::StageKind::logits) read({Kind::branch, m});
    if (stage.kind == model::StageKind::logits)
      write({Kind::vocabulary, m});
    else
      write({Kind::branch, m});
    write({Kind::saved, forward.block.value, forward.stage->value, m});
  }
  void cut_backward(const Backward& backward, const model::Stage& stage) {
    using Kind = Resource::Kind;
    const int m = backward.microbatch.value;
    const Resource saved{Kind::saved, backward.block.value, backward.stage->value, m};
    for (const ParamBlock block : parameters_read(op, model)) read(residence.slot(block, op, model));
    update(saved);
    if (backward.part == BackwardPart::weight) return read({Kind::branch_again, m});
    if (stage.kind == model::StageKind::norm) {
      read({Kind::branch, m});
      return update({Kind::hidden, m});
    }
    if (stage.kind == model::StageKind::logits) {
      read({Kind::vocabulary, m});
      return update({Kind::branch, m});
    }
    if (stage.leave == model::Join::scatter_sequence) read({Kind::branch, m});
    if (stage.leave == model::Join::all_reduce_activation) read({Kind::hidden, m});
    if (stage.kind != model::StageKind::embedding) write({Kind::branch, m});
  }
  void operator()(const GatherSequence& gather) {
    using Kind = Resource::Kind;
    const int m = gather.microbatch.value;
    if (gather.pass == Pass::again) return update({Kind::branch_again, m});
    if (gather.pass == Pass::backward) read({Kind::hidden, m});
    if (gather.pass != Pass::backward) read({Kind::branch, m});
    write({Kind::branch, m});
  }
  template <class Sum>
  void sum_activation(const Sum& sum) {
    update({Resource::Kind::branch, sum.microbatch.value});
    if (sum.pass == Pass::forward) update({Resource::Kind::hidden, sum.microbatch.value});
    if (sum.pass == Pass::recompute) update({Resource::Kind::recomputed, sum.microbatch.value});
  }
  void operator()(const ScatterSequence& sum) { sum_activation(sum); }
  void operator()(const AllReduceActivation& sum) { sum_activation(sum); }
  void operator()(const GatherVocabulary& gather) { update({Resource::Kind::vocabulary, gather.microbatch.value}); }
  void operator()(const ForwardAgain& again) {
    for (const ParamBlock block : parameters_read(op, model)) read(residence.slot(block, op, model));
    read({Resource::Kind::saved, again.block.value, again.stage.value, again.microbatch.value});
    write({Resource::Kind::branch_again, again.microbatch.value});
  }
  void operator()(const SumCopies& sum) { update({Resource::Kind::gradient_shard, sum.block.value}); }

  void operator()(const Forward& forward) {
    const model::Stage* cut = cut_stage(model, forward.block, forward.stage);
    if (cut != nullptr) return cut_forward(forward, *cut);
    compute(forward, Resource::Kind::hidden, false);
  }
  void operator()(const Recompute& recompute) {
    const model::Stage* cut = cut_stage(model, recompute.block, recompute.stage);
    if (cut == nullptr) return compute(recompute, Resource::Kind::recomputed, true);
    const int m = recompute.microbatch.value;
    for (const ParamBlock block : parameters_read(op, model)) read(residence.slot(block, op, model));
    update({Resource::Kind::saved, recompute.block.value, recompute.stage->value, m});
    if (cut->kind == model::StageKind::norm)
      update({Resource::Kind::recomputed, m});
    else
      read({Resource::Kind::branch, m});
    write({Resource::Kind::branch, m});
  }
  void operator()(const Backward& backward) {
    if (const model::Stage* cut = cut_stage(model, backward.block, backward.stage); cut != nullptr)
      cut_backward(backward, *cut);
    else
      compute(backward, Resource::Kind::hidden, true);
    for (const GradientTarget& target : backward.gradients) {
      if (target.add) read(gradient(target.slot));
      write(gradient(target.slot));
    }
  }
  void operator()(const ReduceScatter& reduce) {
    read(gradient(reduce.slot));
    if (reduce.staged) return write(staged(Resource::Kind::download_slot, *reduce.staged));
    const Resource shard = reduce.partial ? Resource{Resource::Kind::partial_shard}
                                          : Resource{Resource::Kind::gradient_shard, reduce.block.value};
    if (reduce.add) read(shard);
    write(shard);
  }
  void operator()(const AllReduce& reduce) {
    if (reduce.staged) return update(staged(Resource::Kind::download_slot, *reduce.staged));
    if (reduce.partial) update({Resource::Kind::partial_shard});
    update({Resource::Kind::gradient_shard, reduce.block.value});
  }
  void operator()(const ClipNorm&) {
    for (int b = 0; b < model.param_blocks(); ++b) {
      read({Resource::Kind::gradient_shard, b});
      read({Resource::Kind::norm_part, b});
    }
    write({Resource::Kind::norm});
  }
  void operator()(const Update& update_) {
    read({Resource::Kind::gradient_shard, update_.block.value});
    read({Resource::Kind::norm});
    update({Resource::Kind::master_shard, update_.block.value});
  }
  void operator()(const Upload& upload) {
    read({Resource::Kind::master_shard, upload.block.value});
    write(upload.staged ? staged(Resource::Kind::upload_slot, *upload.staged)
                        : Resource{Resource::Kind::device_shard, upload.block.value});
  }
  void operator()(const OffloadGradient& offload) {
    update(staged(Resource::Kind::download_slot, offload.slot));
    if (offload.add) read({Resource::Kind::gradient_shard, offload.block.value});
    write({Resource::Kind::gradient_shard, offload.block.value});
  }
  void operator()(const SumSquares& sum) {
    read({Resource::Kind::gradient_shard, sum.block.value});
    write({Resource::Kind::norm_part, sum.block.value});
  }
  void each_saved(Block block, Microbatch microbatch, void (AccessOf::*touch)(Resource)) {
    for (int s = 0; s < static_cast<int>(model[block].stages.size()); ++s)
      (this->*touch)({Resource::Kind::saved, block.value, s, microbatch.value});
  }
  void operator()(const OffloadActivations& offload) {
    each_saved(offload.block, offload.microbatch, &AccessOf::read);
    write({Resource::Kind::host_copy, offload.block.value, offload.microbatch.value});
  }
  void operator()(const DropActivations& drop) {
    read({Resource::Kind::host_copy, drop.block.value, drop.microbatch.value});
    each_saved(drop.block, drop.microbatch, &AccessOf::write);
  }
  void operator()(const ReloadActivations& reload) {
    update({Resource::Kind::host_copy, reload.block.value, reload.microbatch.value});
    each_saved(reload.block, reload.microbatch, &AccessOf::write);
    each_saved(reload.after, reload.microbatch, &AccessOf::write);
  }
};

}  // namespace

Lane lane_of(const Op& op) {
  if (std::holds_alternative<Unshard>(op)) return Lane::gather;
  if (std::holds_alternative<ReduceScatter>(op) || std::holds_alternative<AllReduce>(op) ||
      std::holds_alternative<SumCopies>(op))
    return Lane::reduce;
  if (std::holds_alternative<GatherSequence>(op) || std::holds_alternative<ScatterSequence>(op) ||
      std::holds_alternative<AllReduceActivation>(op) || std::holds_alternative<GatherVocabulary>(op))
    return Lane::tensor;
  if (std::holds_alternative<OffloadGradient>(op) || std::holds_alternative<OffloadActivations>(op))
    return Lane::device_to_host;
  if (std::holds_alternative<Upload>(op) || std::holds_alternative<ReloadActivations>(op)) return Lane::host_to_device;
  const auto* update = std::get_if<Update>(&op);
  if (std::holds_alternative<SumSquares>(op) || (update != nullptr && update->on_host)) return Lane::host;
  return Lane::compute;
}

std::string_view copy_name(const Op& op) {
  if (std::holds_alternative<Upload>(op)) return "upload";
  if (std::holds_alternative<OffloadGradient>(op)) return "offload_gradient";
  if (std::holds_alternative<OffloadActivations>(op)) return "offload";
  if (std::holds_alternative<ReloadActivations>(op)) return "reload";
  return "";
}

std::string_view to_text(Lane lane) {
  switch (lane) {
    case Lane::compute: return "compute";
    case Lane::gather: return "gather";
    case Lane::reduce: return "reduce";
    case Lane::device_to_host: return "device to host";
    case Lane::host_to_device: return "host to device";
    case Lane::host: return "host";
    case Lane::tensor: return "tensor";
  }
  return "?";
}

StageRange stages_of(const model::ComputeBlock& block, const std::optional<Stage>& stage) {
  if (stage) return {stage->value, stage->value + 1};
  return {0, static_cast<int>(block.stages.size())};
}

const model::Stage* cut_stage(const model::Model& model, Block block, const std::optional<Stage>& stage) {
  if (!stage) return nullptr;
  const model::Stage& found = model[block].stages[static_cast<std::size_t>(stage->value)];
  return model::is_cut(found) ? &found : nullptr;
}

std::vector<ParamBlock> parameters_read(const Op& op, const model::Model& model) {
  if (const auto* again = std::get_if<ForwardAgain>(&op))
    return blocks_of(model[again->block], stages_of(model[again->block], again->stage));
  if (const auto* forward = std::get_if<Forward>(&op))
    return blocks_of(model[forward->block], stages_of(model[forward->block], forward->stage));
  if (const auto* recompute = std::get_if<Recompute>(&op))
    return blocks_of(model[recompute->block], stages_of(model[recompute->block], recompute->stage));
  const auto* backward = std::get_if<Backward>(&op);
  if (backward == nullptr || backward->part == BackwardPart::weight) return {};
  const model::ComputeBlock& block = model[backward->block];
  const StageRange range = stages_of(block, backward->stage);
  const bool indices_only = std::all_of(block.stages.begin() + range.first, block.stages.begin() + range.last,
                                        [](const model::Stage& s) { return model::looks_up(s.kind); });
  return indices_only ? std::vector<ParamBlock>{} : blocks_of(block, range);
}

std::optional<Microbatch> computes(const Op& op) {
  if (const auto* forward = std::get_if<Forward>(&op)) return forward->microbatch;
  if (const auto* recompute = std::get_if<Recompute>(&op)) return recompute->microbatch;
  if (const auto* backward = std::get_if<Backward>(&op)) return backward->microbatch;
  if (const auto* again = std::get_if<ForwardAgain>(&op)) return again->microbatch;
  return std::nullopt;
}

std::vector<ParamBlock> gradients_written(const Op& op, const model::Model& model) {
  const auto* backward = std::get_if<Backward>(&op);
  if (backward == nullptr || backward->part == BackwardPart::input) return {};
  return blocks_of(model[backward->block], stages_of(model[backward->block], backward->stage));
}

std::vector<Access> accesses(const Schedule& schedule, const model::Model& model) {
  std::vector<Access> out;
  out.reserve(schedule.ops.size());
  Residence residence;
  for (const Op& op : schedule.ops) {
    AccessOf visitor{model, residence, op};
    std::visit(visitor, op);
    out.push_back(std::move(visitor.out));
  }
  return out;
}

std::string to_text(const Resource& resource, const model::Model& model) {
  using Kind = Resource::Kind;
  const auto block = [&] { return model[ParamBlock{resource.a}].name; };
  switch (resource.kind) {
    case Kind::parameter_slot: return fmt::format("ring{}.{}", resource.a, resource.b);
    case Kind::gradient_slot: return fmt::format("grad{}.{}", resource.a, resource.b);
    case Kind::master_shard: return fmt::format("shard({})", block());
    case Kind::gradient_shard: return fmt::format("gradient shard({})", block());
    case Kind::partial_shard: return "partial gradient shard";
    case Kind::group_copy: return fmt::format("group copy({})", block());
    case Kind::hidden: return fmt::format("hidden(m{})", resource.a);
    case Kind::recomputed: return fmt::format("recomputed(m{})", resource.a);
    case Kind::branch: return fmt::format("branch(m{})", resource.a);
    case Kind::branch_again: return fmt::format("branch again(m{})", resource.a);
    case Kind::vocabulary: return fmt::format("vocabulary(m{})", resource.a);
    case Kind::saved:
      return fmt::format("activation({}, {}, m{})", model[Block{resource.a}].name,
                         model[Block{resource.a}].stages[static_cast<std::size_t>(resource.b)].name, resource.c);
    case Kind::device_shard: return fmt::format("device shard({})", block());
    case Kind::upload_slot: return fmt::format("up{}.{}", resource.a, resource.b);
    case Kind::download_slot: return fmt::format("down{}.{}", resource.a, resource.b);
    case Kind::host_copy: return fmt::format("host copy({}, m{})", model[Block{resource.a}].name, resource.b);
    case Kind::norm_part: return fmt::format("squares({})", block());
    case Kind::norm: return "norm";
  }
  return "?";
}

}  // namespace trireme::schedule
