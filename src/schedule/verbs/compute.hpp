// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>

#include "schedule/verbs/verb.hpp"
#include "trireme/model/stage_work.hpp"

/// Verbs that run stages.
namespace trireme::schedule {

/// Whether a stage of an op has a router whose backward reads sums over ranks.
template <class Compute>
bool sums_loads(const Compute& op, const model::Model& model) {
  const StageRange range = stages_of(model[op.block], op.stage);
  const auto& stages = model[op.block].stages;
  return std::any_of(stages.begin() + range.first, stages.begin() + range.last,
                     [](const model::Stage& stage) { return stage.sums_loads; });
}

/// Effects of whole stages: the residual stream, and saved tensors.
template <class Stream, class Compute>
void whole_effects(const Compute& op, Effects& on, bool reads_saved) {
  on.read_parameters();
  on.update(Stream{op.microbatch});
  const StageRange range = stages_of(on.model[op.block], op.stage);
  for (int s = range.first; s < range.last; ++s) {
    const resource::Saved saved{op.block, Stage{s}, op.microbatch};
    if (reads_saved) on.read(saved);
    on.write(saved);
  }
}

/// Effects of a sharded stage: its tensors, and the counts of rows. Rows and the gradient of attention share a resource
/// with the tensors that they overwrite, and count as updates.
template <class Compute>
void sharded_effects(const Compute& op, const model::Stage& stage, Effects& on) {
  on.read_parameters();
  on.access(tensors_of(op, on.model), op.microbatch);
  if (model::receives_rows(stage))
    on.read(resource::Counts{op.block, op.microbatch});
  else if (model::is_of_experts(stage.kind))
    on.read(resource::Rows{op.microbatch});
  if (model::ends_attention(stage.kind)) on.read(resource::Branch{op.microbatch});
}

template <>
struct Description<Forward> {
  static constexpr Names<1> names{"forward"};
  static Lane lane(const Forward&) { return Lane::compute; }
  static void effects(const Forward& op, Effects& on) {
    const model::Stage* const partitioned = partitioned_stage(on.model, op.block, op.stage);
    const bool reads_cache = op.keep == model::Keep::kv_cache;  // of the step before
    if (partitioned == nullptr) {
      if (sums_loads(op, on.model)) on.write(resource::Counts{op.block, op.microbatch});
      return whole_effects<resource::Hidden>(op, on, reads_cache);
    }
    sharded_effects(op, *partitioned, on);
    const resource::Saved saved{op.block, *op.stage, op.microbatch};
    if (reads_cache) on.read(saved);
    on.write(saved);
    if (model::does(*partitioned, model::Work::router)) on.write(resource::Counts{op.block, op.microbatch});
  }
  static std::string print(const Forward& op, const model::Model& model) {
    constexpr std::array keeps{" keep input", "", " keep all", " keep kv_cache"};
    return compute_text(model, op.block, op.stage, op.microbatch) + keeps.at(static_cast<std::size_t>(op.keep));
  }
  static Op parse(Line& line, std::string_view) {
    const auto [block, stage] = line.block();
    Forward op{.block = block, .stage = stage, .microbatch = line.microbatch()};
    if (!line.take_if("keep")) return op;
    if (line.take_if("input"))
      op.keep = model::Keep::input;
    else if (line.take_if("all"))
      op.keep = model::Keep::all;
    else if (line.take_if("kv_cache"))
      op.keep = model::Keep::kv_cache;
    else
      line.expected("input, all or kv_cache");
    return op;
  }
};

template <>
struct Description<Recompute> {
  static constexpr Names<1> names{"recompute"};
  static Lane lane(const Recompute&) { return Lane::compute; }
  static void effects(const Recompute& op, Effects& on) {
    const model::Stage* const partitioned = partitioned_stage(on.model, op.block, op.stage);
    if (partitioned == nullptr) return whole_effects<resource::Recomputed>(op, on, true);
    sharded_effects(op, *partitioned, on);
    on.update(resource::Saved{op.block, *op.stage, op.microbatch});
  }
  static std::string print(const Recompute& op, const model::Model& model) {
    return compute_text(model, op.block, op.stage, op.microbatch);
  }
  static Op parse(Line& line, std::string_view) {
    const auto [block, stage] = line.block();
    return Recompute{block, stage, line.microbatch()};
  }
};

template <>
struct Description<Backward> {
  static constexpr Names<3> names{"backward", "backward_input", "backward_weight"};  // by part
  static Lane lane(const Backward&) { return Lane::compute; }
  static void effects(const Backward& op, Effects& on) {
    if (const model::Stage* partitioned = partitioned_stage(on.model, op.block, op.stage); partitioned != nullptr)
      cut_effects(op, *partitioned, on);
    else if (op.part == BackwardPart::weight)
      pending_effects(op, on);
    else
      whole_effects<resource::Hidden>(op, on, true);
    if (op.part != BackwardPart::weight && sums_loads(op, on.model)) on.read(resource::Counts{op.block, op.microbatch});
    for (const GradientTarget& target : op.gradients) {
      const Resource into =
          target.in_place ? Resource{resource::GradientShard{target.block}} : resource::GradientSlot{target.slot};
      if (target.add) on.read(into);
      on.write(into);
    }
  }
  static std::string print(const Backward& op, const model::Model& model) {
    std::string text = compute_text(model, op.block, op.stage, op.microbatch);
    for (std::size_t i = 0; i < op.gradients.size(); ++i) {
      const GradientTarget& t = op.gradients[i];
      text += fmt::format("{} {} {}{}", i == 0 ? " ->" : ",", model[t.block].name,
                          t.in_place ? "in place" : slot_text("grad", t.slot), t.add ? " add" : "");
    }
    return text;
  }
  static Op parse(Line& line, std::string_view name) {
    const auto part = static_cast<BackwardPart>(std::find(names.begin(), names.end(), name) - names.begin());
    const auto [block, stage] = line.block();
    Backward op{.block = block, .stage = stage, .microbatch = line.microbatch(), .gradients = {}, .part = part};
    if (!line.take_if("->")) return op;
    do {
      GradientTarget target{.block = line.param_block(), .slot = {}, .in_place = line.in_place()};
      if (!target.in_place) target.slot = line.slot("grad");
      if (!line.comma()) target.add = line.add();
      op.gradients.push_back(target);
    } while (line.comma());
    return op;
  }

 private:
  /// Effects of whole stages' weight gradients, from the pending tensors.
  static void pending_effects(const Backward& op, Effects& on) {
    const StageRange range = stages_of(on.model[op.block], op.stage);
    for (int s = range.first; s < range.last; ++s) on.update(resource::Saved{op.block, Stage{s}, op.microbatch});
  }
  static void cut_effects(const Backward& op, const model::Stage& stage, Effects& on) {
    on.update(resource::Saved{op.block, *op.stage, op.microbatch});
    if (op.part != BackwardPart::weight) {
      sharded_effects(op, stage, on);
      if (model::only_sums_rows(stage))
        on.read(resource::Saved{op.block, Stage{op.stage->value - model::stages_from_router}, op.microbatch});
      return;
    }
    on.access(tensors_of(op, on.model), op.microbatch);
    if (model::receives_rows(stage)) on.read(resource::Counts{op.block, op.microbatch});
  }
};

template <>
struct Description<Rebuild> {
  static constexpr Names<1> names{"recompute_norm"};
  static Lane lane(const Rebuild&) { return Lane::compute; }
  static void effects(const Rebuild& op, Effects& on) {
    on.read_parameters();
    on.read(resource::Saved{op.block, op.segment, op.microbatch});
    on.access(tensors_of(op, on.model), op.microbatch);
  }
  static std::string print(const Rebuild& op, const model::Model& model) {
    return compute_text(model, op.block, op.segment, op.microbatch);
  }
  static Op parse(Line& line, std::string_view) {
    const auto [block, segment] = line.block_and_stage();
    return Rebuild{block, segment, line.microbatch()};
  }
};

}  // namespace trireme::schedule
