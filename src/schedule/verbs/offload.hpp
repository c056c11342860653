// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "schedule/verbs/verb.hpp"

/// Verbs between device and host.
namespace trireme::schedule {

template <>
struct Description<Upload> {
  static constexpr Names<1> names{"upload"};
  static constexpr std::string_view copy = "upload";
  static Lane lane(const Upload&) { return Lane::host_to_device; }
  static void effects(const Upload& op, Effects& on) {
    on.read(resource::MasterShard{op.block});
    if (op.staged)
      on.write(resource::UploadSlot{*op.staged});
    else
      on.write(resource::DeviceShard{op.block});
  }
  static std::string print(const Upload& op, const model::Model& model) {
    return model[op.block].name + slot_text("->", "up", op.staged);
  }
  static Op parse(Line& line, std::string_view) {
    const ParamBlock block = line.param_block();
    return Upload{block, line.slot_if("->", "up")};
  }
};

template <>
struct Description<OffloadGradient> {
  static constexpr Names<1> names{"offload_gradient"};
  static constexpr std::string_view copy = "offload_gradient";
  static Lane lane(const OffloadGradient&) { return Lane::device_to_host; }
  static void effects(const OffloadGradient& op, Effects& on) {
    on.update(resource::DownloadSlot{op.slot});
    if (op.add) on.read(resource::GradientShard{op.block});
    on.write(resource::GradientShard{op.block});
  }
  static std::string print(const OffloadGradient& op, const model::Model& model) {
    return fmt::format("{} <- {}{}", model[op.block].name, slot_text("down", op.slot), op.add ? " add" : "");
  }
  static Op parse(Line& line, std::string_view) {
    const ParamBlock block = line.param_block();
    line.take_word("<-");
    const Slot slot = line.slot("down");
    return OffloadGradient{block, slot, line.take_if("add")};
  }
};

template <>
struct Description<SumSquares> {
  static constexpr Names<1> names{"sum_squares"};
  static Lane lane(const SumSquares&) { return Lane::host; }
  static void effects(const SumSquares& op, Effects& on) {
    on.read(resource::GradientShard{op.block});
    on.write(resource::NormPart{op.block});
  }
  static std::string print(const SumSquares& op, const model::Model& model) { return model[op.block].name; }
  static Op parse(Line& line, std::string_view) { return SumSquares{line.param_block()}; }
};

/// Calls `touch` for the saved tensors of each stage of a block.
template <class Touch>
void each_saved(const Effects& on, Block block, Microbatch microbatch, Touch touch) {
  for (int s = 0; s < static_cast<int>(on.model[block].stages.size()); ++s)
    touch(resource::Saved{block, Stage{s}, microbatch});
}

template <>
struct Description<OffloadActivations> {
  static constexpr Names<1> names{"offload"};
  static constexpr std::string_view copy = "offload";
  static Lane lane(const OffloadActivations&) { return Lane::device_to_host; }
  static void effects(const OffloadActivations& op, Effects& on) {
    each_saved(on, op.block, op.microbatch, [&](const auto& saved) { on.read(saved); });
    on.write(resource::HostCopy{op.block, op.microbatch});
  }
  static std::string print(const OffloadActivations& op, const model::Model& model) {
    return fmt::format("{} m{} min {}", model[op.block].name, op.microbatch.value, op.min_bytes.value);
  }
  static Op parse(Line& line, std::string_view) {
    const Block block = line.block().first;
    const Microbatch microbatch = line.microbatch();
    line.take_word("min");
    return OffloadActivations{block, microbatch, {line.bytes()}};
  }
};

/// The text of a verb that has these two and nothing else.
template <class Verb>
struct BlockAndMicrobatch {
  static std::string print(const Verb& op, const model::Model& model) {
    return fmt::format("{} m{}", model[op.block].name, op.microbatch.value);
  }
  static Op parse(Line& line, std::string_view) {
    const Block block = line.block().first;
    return Verb{block, line.microbatch()};
  }
};

template <>
struct Description<DropActivations> : BlockAndMicrobatch<DropActivations> {
  static constexpr Names<1> names{"drop"};
  static Lane lane(const DropActivations&) { return Lane::compute; }
  static void effects(const DropActivations& op, Effects& on) {
    on.read(resource::HostCopy{op.block, op.microbatch});
    each_saved(on, op.block, op.microbatch, [&](const auto& saved) { on.write(saved); });
  }
};

template <>
struct Description<AllocateActivations> : BlockAndMicrobatch<AllocateActivations> {
  static constexpr Names<1> names{"allocate"};
  static Lane lane(const AllocateActivations&) { return Lane::compute; }
  static void effects(const AllocateActivations& op, Effects& on) {
    each_saved(on, op.block, op.microbatch, [&](const auto& saved) { on.write(saved); });
  }
};

template <>
struct Description<ReloadActivations> : BlockAndMicrobatch<ReloadActivations> {
  static constexpr Names<1> names{"reload"};
  static constexpr std::string_view copy = "reload";
  static Lane lane(const ReloadActivations&) { return Lane::host_to_device; }
  static void effects(const ReloadActivations& op, Effects& on) {
    on.update(resource::HostCopy{op.block, op.microbatch});
    each_saved(on, op.block, op.microbatch, [&](const auto& saved) { on.update(saved); });
  }
};

}  // namespace trireme::schedule
