// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "schedule/verbs/verb.hpp"

/// Verbs that gather and free parameters.
namespace trireme::schedule {

template <>
struct Description<Unshard> {
  static constexpr Names<1> names{"unshard"};
  static Lane lane(const Unshard& op) { return op.in_place ? Lane::compute : Lane::gather; }
  static void effects(const Unshard& op, Effects& on) {
    if (op.in_place) {
      on.residence[op.block].reset();
      return;
    }
    on.residence[op.block] = op.slot;
    if (op.from) {
      on.read(resource::GroupCopy{op.block});
    } else if (op.staged) {
      on.update(resource::UploadSlot{*op.staged});
    } else {
      on.read_shard(op.block);
    }
    on.write(resource::ParameterSlot{op.slot});
  }
  static std::string print(const Unshard& op, const model::Model& model) {
    if (op.in_place) return model[op.block].name + " in place";
    const std::string from = op.from ? fmt::format(" from {}", *op.from) : "";
    return model[op.block].name + from + slot_text("<-", "up", op.staged) + " -> " + slot_text("ring", op.slot);
  }
  static Op parse(Line& line, std::string_view) {
    const ParamBlock block = line.param_block();
    if (line.in_place()) return Unshard{.block = block, .slot = {}, .in_place = true};
    const std::optional<int> from = line.take_if("from") ? std::optional(line.count()) : std::nullopt;
    const std::optional<Slot> staged = line.slot_if("<-", "up");
    line.take_word("->");
    return Unshard{block, line.slot("ring"), from, staged};
  }
};

template <>
struct Description<Reshard> {
  static constexpr Names<1> names{"reshard"};
  static Lane lane(const Reshard&) { return Lane::compute; }
  static void effects(const Reshard& op, Effects& on) {
    const std::optional<Slot> slot = on.slot(op.block);
    on.residence.erase(op.block);
    if (!slot) return;
    if (op.to) {
      on.read(resource::ParameterSlot{*slot});
      on.write(resource::GroupCopy{op.block});
    }
    on.write(resource::ParameterSlot{*slot});
  }
  static std::string print(const Reshard& op, const model::Model& model) {
    return model[op.block].name + (op.to ? fmt::format(" to {}", *op.to) : "");
  }
  static Op parse(Line& line, std::string_view) {
    const ParamBlock block = line.param_block();
    return Reshard{block, line.take_if("to") ? std::optional(line.count()) : std::nullopt};
  }
};

}  // namespace trireme::schedule
