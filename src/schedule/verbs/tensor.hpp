// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "schedule/verbs/verb.hpp"

/// Collectives over the tensor axis.
namespace trireme::schedule {

/// `b0.attention m0 again`.
template <class Verb>
std::string stage_text(const Verb& op, const model::Model& model) {
  constexpr std::array passes{"", " backward", " again", " recompute"};
  return compute_text(model, op.block, op.stage, op.microbatch) + passes.at(static_cast<std::size_t>(op.phase));
}
template <class Verb>
Op parse_stage(Line& line) {
  const auto [block, stage] = line.block_and_stage();
  Verb op{.block = block, .stage = stage, .microbatch = line.microbatch()};
  if (line.take_if("backward")) op.phase = Phase::backward;
  if (line.take_if("again")) op.phase = Phase::again;
  if (line.take_if("recompute")) op.phase = Phase::recompute;
  return op;
}

template <class Verb>
const model::Stage& stage_named_by(const Verb& op, const model::Model& model) {
  return model[op.block].stages[static_cast<std::size_t>(op.stage.value)];
}

template <>
struct Description<GatherSequence> {
  static constexpr Names<1> names{"gather_sequence"};
  static Lane lane(const GatherSequence&) { return Lane::tensor; }
  static void effects(const GatherSequence& op, Effects& on) {
    if (op.phase == Phase::again) return on.update(resource::BranchAgain{op.microbatch});
    if (op.phase == Phase::backward && !stage_named_by(op, on.model).sum_is_normed)
      on.read(resource::Hidden{op.microbatch});
    else
      on.read(resource::Branch{op.microbatch});
    on.write(resource::Branch{op.microbatch});
  }
  static std::string print(const GatherSequence& op, const model::Model& model) { return stage_text(op, model); }
  static Op parse(Line& line, std::string_view) { return parse_stage<GatherSequence>(line); }
};

/// What a sum over the tensor axis reads and writes, however its result is shared.
template <class Sum>
void sum_effects(const Sum& op, Effects& on) {
  on.update(resource::Branch{op.microbatch});
  if (stage_named_by(op, on.model).sum_is_normed) return;
  if (op.phase == Phase::forward) on.update(resource::Hidden{op.microbatch});
  if (op.phase == Phase::recompute) on.update(resource::Recomputed{op.microbatch});
}

template <>
struct Description<ScatterSequence> {
  static constexpr Names<1> names{"scatter_sequence"};
  static Lane lane(const ScatterSequence&) { return Lane::tensor; }
  static void effects(const ScatterSequence& op, Effects& on) { sum_effects(op, on); }
  static std::string print(const ScatterSequence& op, const model::Model& model) { return stage_text(op, model); }
  static Op parse(Line& line, std::string_view) { return parse_stage<ScatterSequence>(line); }
};

template <>
struct Description<AllReduceActivation> {
  static constexpr Names<1> names{"all_reduce_activation"};
  static Lane lane(const AllReduceActivation&) { return Lane::tensor; }
  static void effects(const AllReduceActivation& op, Effects& on) { sum_effects(op, on); }
  static std::string print(const AllReduceActivation& op, const model::Model& model) { return stage_text(op, model); }
  static Op parse(Line& line, std::string_view) { return parse_stage<AllReduceActivation>(line); }
};

template <>
struct Description<AllReduceStatistics> {
  static constexpr Names<1> names{"all_reduce_statistics"};
  static Lane lane(const AllReduceStatistics&) { return Lane::tensor; }
  static void effects(const AllReduceStatistics& op, Effects& on) {
    on.update(resource::Statistics{op.microbatch});
    if (op.phase != Phase::backward) return;
    on.update(resource::Branch{op.microbatch});
    on.read(resource::Saved{op.block, op.stage, op.microbatch});
  }
  static std::string print(const AllReduceStatistics& op, const model::Model& model) { return stage_text(op, model); }
  static Op parse(Line& line, std::string_view) { return parse_stage<AllReduceStatistics>(line); }
};

template <>
struct Description<GatherVocabulary> {
  static constexpr Names<1> names{"gather_vocabulary"};
  static Lane lane(const GatherVocabulary&) { return Lane::tensor; }
  static void effects(const GatherVocabulary& op, Effects& on) { on.update(resource::Vocabulary{op.microbatch}); }
  static std::string print(const GatherVocabulary& op, const model::Model& model) {
    return compute_text(model, op.block, op.stage, op.microbatch);
  }
  static Op parse(Line& line, std::string_view) {
    const auto [block, stage] = line.block_and_stage();
    return GatherVocabulary{block, stage, line.microbatch()};
  }
};

template <>
struct Description<AllReduceReplicated> {
  static constexpr Names<1> names{"all_reduce_replicated"};
  static Lane lane(const AllReduceReplicated&) { return Lane::reduce; }
  static void effects(const AllReduceReplicated& op, Effects& on) { on.update(resource::GradientShard{op.block}); }
  static std::string print(const AllReduceReplicated& op, const model::Model& model) {
    return model[op.block].name + (op.over == Copies::pipeline ? " over pipeline" : "");
  }
  static Op parse(Line& line, std::string_view) {
    const ParamBlock block = line.param_block();
    if (!line.take_if("over")) return AllReduceReplicated{block};
    line.take_word("pipeline");
    return AllReduceReplicated{block, Copies::pipeline};
  }
};

}  // namespace trireme::schedule
