// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "schedule/verbs/verb.hpp"

/// Verbs that sum gradients over the data-parallel axes.
namespace trireme::schedule {

template <>
struct Description<ReduceScatter> {
  static constexpr Names<1> names{"reduce_scatter"};
  static Lane lane(const ReduceScatter&) { return Lane::reduce; }
  static void effects(const ReduceScatter& op, Effects& on) {
    if (op.in_place) return on.update(resource::GradientShard{op.block});
    on.read(resource::GradientSlot{op.slot});
    if (op.staged) return on.write(resource::DownloadSlot{*op.staged});
    const Resource shard = op.partial ? Resource{resource::PartialShard{}} : resource::GradientShard{op.block};
    if (op.add) on.read(shard);
    on.write(shard);
  }
  static std::string print(const ReduceScatter& op, const model::Model& model) {
    if (op.in_place) return model[op.block].name + " in place";
    return fmt::format("{} <- {}{}{}", model[op.block].name, slot_text("grad", op.slot),
                       op.add ? " add" : (op.partial ? " partial" : ""), slot_text("->", "down", op.staged));
  }
  static Op parse(Line& line, std::string_view) {
    const ParamBlock block = line.param_block();
    if (line.in_place()) return ReduceScatter{.block = block, .slot = {}, .in_place = true};
    line.take_word("<-");
    const Slot slot = line.slot("grad");
    const bool add = line.take_if("add");
    const bool partial = !add && line.take_if("partial");
    return ReduceScatter{block, slot, add, partial, line.slot_if("->", "down")};
  }
};

template <>
struct Description<AllReduce> {
  static constexpr Names<1> names{"all_reduce"};
  static Lane lane(const AllReduce&) { return Lane::reduce; }
  static void effects(const AllReduce& op, Effects& on) {
    if (op.staged) return on.update(resource::DownloadSlot{*op.staged});
    if (op.partial) on.update(resource::PartialShard{});
    on.update(resource::GradientShard{op.block});
  }
  static std::string print(const AllReduce& op, const model::Model& model) {
    return model[op.block].name + (op.partial ? " partial" : "") + slot_text("->", "down", op.staged);
  }
  static Op parse(Line& line, std::string_view) {
    const ParamBlock block = line.param_block();
    const bool partial = line.take_if("partial");
    return AllReduce{block, partial, line.slot_if("->", "down")};
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
